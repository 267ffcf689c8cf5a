"""The command, as ``python -m odeco``."""

import sys

from odeco.cli import main

if __name__ == "__main__":
    sys.exit(main())
