import sys
from pathlib import Path

# The tests run from a clone too, where nothing is installed.
sys.path[:0] = [str(Path(__file__).parents[1] / "src"), str(Path(__file__).parent)]
