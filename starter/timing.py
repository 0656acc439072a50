"""Time an operator beside the same in PyTorch's own operators, eager and compiled.

python timing.py mykernels:reglu mykernels.reglu:composite 4096x4096 4096x4096 None

An argument is the shape of a random tensor, or a number, True, False or None. Tensors
are on the GPU if there is one. They are the same in each call, so that small ones stay
in its cache.
"""

import argparse
import ast
import importlib
import re

import torch
from torch.utils.benchmark import Compare, Timer


def main() -> None:
    """Read the command line, measure, and print a table."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("operator", help="package:function")
    parser.add_argument(
        "pytorch", help="package.module:function, of the same arguments"
    )
    parser.add_argument("arguments", nargs="+")
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    functions = {}
    for description in ("operator", "pytorch"):
        module, _, name = getattr(given, description).partition(":")
        functions[description] = getattr(importlib.import_module(module), name)
    functions["torch.compile(pytorch)"] = torch.compile(functions["pytorch"])
    results = []
    for dtype in (torch.float32, torch.bfloat16):
        arguments = [
            torch.randn([*map(int, text.split("x"))], device=device, dtype=dtype)
            if re.fullmatch(r"\d+(x\d+)+", text)
            else ast.literal_eval(text)
            for text in given.arguments
        ]
        for description, function in functions.items():
            names = {"label": given.operator, "description": description}
            names |= {"sub_label": f"{dtype} on {device}"}
            names["num_threads"] = torch.get_num_threads()
            call = {"function": function, "arguments": arguments}
            with torch.no_grad():
                function(*arguments)  # compiles
                timer = Timer("function(*arguments)", globals=call, **names)
                results.append(timer.blocked_autorange(min_run_time=0.5))
    Compare(results).print()


if __name__ == "__main__":
    main()
