"""Runs the command line as ``python -m batchup_ng``."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
