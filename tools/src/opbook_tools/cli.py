"""The command ``opbook``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run one of the tools; return the exit status."""
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
    chosen = parser.parse_args(arguments)
    from opbook_tools import command  # it needs PyTorch, and --help does not

    return command.run(chosen)


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
        help="a finding, refusal or note that has to come, and is then no finding",
    )
    add(
        "--nondifferentiable",
        action="append",
        default=[],
        metavar="PLACE",
        help="an argument without a gradient: its number, or 'keyword NAME'",
    )
    add("--strict", action="store_true", help="forward mode and no gradient may lack")
    add("--sizes", action="store_true", help="try other sizes beside integer arguments")
    add("--timeout", type=float, default=60, help="seconds for one check (60)")
    add("--json", action="store_true", help="print one JSON object")
    add("--github", action="store_true", help="print annotations for GitHub Actions")
    add("-v", "--verbose", action="store_true", help="print tracebacks")


if __name__ == "__main__":
    sys.exit(main())
