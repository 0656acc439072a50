"""``python -m proof``: see `proof.prove`."""

import sys

from .prove import main

if __name__ == "__main__":
    sys.exit(main())
