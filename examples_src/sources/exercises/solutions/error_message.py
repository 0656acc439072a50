def check(x, bias):
    if bias.shape != x.shape[-1:]:
        raise ValueError(
            f"add_bias: expected bias to have the shape [{x.shape[-1]}], an element "
            f"for each column of x, but got {[*bias.shape]}"
        )
