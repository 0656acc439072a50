"""A process group for the backend: gloo, on copies of the tensors on the host."""

import sys

import opbook_device
import torch
import torch.distributed as dist
from torch.utils import _pytree


# [group]
class OpbookGroup(dist.ProcessGroup):
    """Copies tensors to the host, calls gloo, and copies them back."""

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self.gloo = dist.ProcessGroupGloo(store, rank, size, timeout)

    def getBackendName(self) -> str:
        """Name of the backend, which error messages contain."""
        return "opbook_gloo"


def collective(name: str):
    """Return a method that has the work of one collective operation done by gloo."""

    def method(self, *args, **options):
        pairs = []

        def on_host(value):
            if not isinstance(value, torch.Tensor):
                return value
            pairs.append((value, value.cpu()))  # waits for the current stream
            return pairs[-1][1]

        args_on_host = _pytree.tree_map(on_host, args)
        getattr(self.gloo, name)(*args_on_host, **options).wait()
        for tensor, host in pairs:
            tensor.copy_(host)
        done = torch.futures.Future()
        done.set_result(args[0] if args else None)
        return torch._C._distributed_c10d._create_work_from_future(done)

    return method


for name in ("allreduce", "broadcast", "allgather", "reduce_scatter", "barrier"):
    setattr(OpbookGroup, name, collective(name))

dist.Backend.register_backend("opbook_gloo", OpbookGroup, devices=["opbook"])
# [/group]


# [rank]
def main(library: str, file: str, rank: int, size: int) -> None:
    """Be one process of a group: sum a tensor, and train with the same gradient."""
    opbook_device.load(library)
    store = dist.FileStore(file, size)
    dist.init_process_group("opbook_gloo", store=store, rank=rank, world_size=size)
    total = torch.tensor([rank + 1.0], device="opbook")
    dist.all_reduce(total)
    model = torch.nn.Linear(1, 1, bias=False).to("opbook")
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    parallel(torch.tensor([[2.0 * rank]], device="opbook")).sum().backward()
    print(f"sum {total.item()}, gradient {model.weight.grad.item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
# [/rank]
