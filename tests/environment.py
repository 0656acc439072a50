"""The environment of the processes that a test starts."""

import os

# What a run of the book sets for its own processes.
BOOK = ("PROOF_", "COVERAGE_")


def without(*prefixes: str) -> dict[str, str]:
    """This process's variables but those whose names begin so."""
    return {k: v for k, v in os.environ.items() if not k.startswith(prefixes)}
