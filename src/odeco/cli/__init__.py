"""The command `odeco`: one file a command, loaded only when it is asked for."""

from odeco.cli._main import main

__all__ = ["main"]
