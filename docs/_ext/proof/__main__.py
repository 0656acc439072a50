"""``python -m proof``: what must be built before Sphinx or pytest starts."""

import sys

from .build import BuildError, build_library, compile_kernels


def main() -> int:
    """Build and compile; print one line for each step."""

    def say(line: str) -> None:
        print(line, flush=True)

    try:
        build_library(say)
        compile_kernels(say)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
