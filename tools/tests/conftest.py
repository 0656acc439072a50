import gc
import shutil
import sys
from pathlib import Path

import pytest
import torch

# The tests run from a clone too, where nothing is installed.
sys.path[:0] = [str(Path(__file__).parents[1] / "src"), str(Path(__file__).parent)]

collect_ignore = [] if shutil.which("nvidia-smi") else ["test_check_on_a_gpu.py"]


def pytest_collection_finish() -> None:
    """Spare the forks of a check a walk through all that is loaded here."""
    gc.freeze()


@pytest.fixture(autouse=True)
def forks():
    """A check forks, and autograd works no more in a fork of what has used CUDA."""
    if torch.cuda.is_initialized():
        pytest.skip("other tests of this process have used CUDA: run these alone")
