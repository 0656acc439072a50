def double_(x):
    memory = x.detach().numpy()
    memory *= 2
    torch.autograd.graph.increment_version(x)
