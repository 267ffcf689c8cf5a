"""The command `odeco`: sub-commands, which are imported only when they are used."""

from __future__ import annotations

import sys

from odeco._util.lazy import missing_library

__all__ = ["main"]


def main() -> int:
    """Run the command with the arguments of this process, and return its exit code."""
    try:
        from odeco.cli.app import run  # click and rich may be missing
    except ModuleNotFoundError as error:
        text = missing_library(error, "The command odeco")
        if text is None:
            raise
        sys.stderr.write(f"{text}\n")
        return 1
    return run(sys.argv[1:])
