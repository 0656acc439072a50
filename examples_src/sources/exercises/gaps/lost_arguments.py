"""Pass on all that an operator was called with.

The mode notes the name of each operator that is called in its `with` block, and calls
it. The names are right, and some results change. Find what is lost on the way.
"""

from torch.utils._python_dispatch import TorchDispatchMode


# [gap]
class Noted(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.names.append(operator.name())
        return operator(*args)


# [/gap]
