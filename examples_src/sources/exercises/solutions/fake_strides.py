@twice.register_fake
def twice_fake(x):
    return x.new_empty(x.shape)
