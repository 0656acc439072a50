def limit_to_one(x):
    return x / x.abs().max().clamp(min=1)
