"""The command `odeco`: one file a sub-command, loaded only when it is asked for."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> int:
    """Run the command with the arguments of this process, and return its exit code."""
    try:
        from odeco.cli._main import run  # what it is made of may not be installed
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        sys.stderr.write(f"The command odeco needs {error.name}, which is not installed: pip install 'odeco[cli]'\n")
        return 1
    return run(sys.argv[1:])
