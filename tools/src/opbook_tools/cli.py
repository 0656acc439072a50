"""The command ``opbook``.

Its exit status: 0 if nothing is wrong, 1 if something is, 2 if it was called in a way
that looks at nothing, 3 if a check itself failed.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the tools; return the exit status, 141 if nobody reads any more."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # `>&-` has closed it: nothing else is to be 1
            setattr(sys, name, open(os.devnull, "r+"))  # noqa: SIM115  for ever
    try:
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()
    except OSError as error:  # what is left goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # of `| head`
            return 128 + 13
        print(f"opbook: the output cannot be written: {error}", file=sys.stderr)
        return 3


def _run(arguments: Sequence[str] | None) -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="opbook", description="Tools for PyTorch operators of your own."
    )
    tools = parser.add_subparsers(dest="tool", required=True, metavar="TOOL")
    checker = tools.add_parser(
        "check",
        help="find faults of an operator that raise no error",
        description="Find faults of an operator that raise no error.",
        epilog="example: opbook check mine:softcap my_samples:SAMPLES "
        "--reference mine:softcap_in_python",
    )
    _arguments_of_check(checker)
    doctor = tools.add_parser(
        "doctor",
        help="say what this machine can build and run, or whether a library fits it",
        description="Say what this machine can build and run, what it cannot, and why; "
        "or whether a compiled library fits it.",
        epilog="example: opbook doctor ./build/lib/_C.abi3.so",
    )
    doctor.add_argument(
        "library", nargs="?", help="a compiled extension: it is read, not run"
    )
    doctor.add_argument("--json", action="store_true", help="print one JSON object")
    tools.add_parser(
        "new",
        help="make a project with an operator of your own",
        epilog="example: opbook new ../mykernels --operator reglu",
    )
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["new"]:
        return _new(given[1:])
    chosen = parser.parse_args(given)
    # PyTorch's other way to look for a GPU leaves processes that cannot be forked.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    # Each needs modules that --help does without.
    try:
        if chosen.tool == "doctor":
            from opbook_tools import doctor as tool
        else:
            from opbook_tools import command as tool
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        print("opbook check: PyTorch is not installed for this Python", file=sys.stderr)
        return 2
    try:
        return tool.run(chosen)
    except BrokenPipeError:
        raise
    except Exception:
        traceback.print_exc()
        print(f"opbook {chosen.tool}: this is a fault of the tool", file=sys.stderr)
        return 3


def _new(given: list[str]) -> int:
    """Run the starter's own script, as readers of a clone do."""
    from opbook_tools import borrowed

    sys.argv = ["opbook new", *given]
    borrowed.module("starter/new.py").main()
    return 0


def _arguments_of_check(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("operator", help="package.module:name of a function, or of an operator")
    add("samples", help="package.module:name of a list of tuples, or of a function")
    add("--reference", metavar="NAME", help="a function that returns the right numbers")
    add("--select", action="append", metavar="CHECK", help="run these checks alone")
    add("--skip", action="append", default=[], metavar="CHECK", help="leave these out")
    add(
        "--expect",
        action="append",
        default=[],
        metavar="'CHECK: TEXT'",
        help="how a finding, refusal or note begins that has to come; it is then none",
    )
    add(
        "--nondifferentiable",
        action="append",
        default=[],
        metavar="PLACE",
        help="an argument without a gradient: its number, or 'keyword NAME'",
    )
    add(
        "--strict",
        action="store_true",
        help="a missing forward mode or gradient is a finding",
    )
    add("--sizes", action="store_true", help="try other sizes beside integer arguments")
    add("--device", help="check copies of the tensors of the samples there: cuda")
    add("--timeout", type=float, default=60, help="seconds for one check (60)")
    add("--json", action="store_true", help="print one JSON object")
    add("--github", action="store_true", help="print annotations for GitHub Actions")
    add("-v", "--verbose", action="store_true", help="print tracebacks")


if __name__ == "__main__":
    sys.exit(main())
