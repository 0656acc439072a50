replaced = torch.library.get_kernel("aten::abs", "CPU")


def noted(keyset, x):
    shapes.append(x.shape)
    return replaced.call_boxed(keyset, x)
