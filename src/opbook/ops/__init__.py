"""One module per operator: its Python interface, fake kernel and autograd."""
