"""The command's face: its sub-commands by name, its errors as advice, its exit codes."""

from __future__ import annotations

from importlib import import_module

import click

# Each sub-command is the object `command` of the module odeco.cli._NAME; importing it is put off until it is asked for,
# so that `odeco --help` is quick.
SUMMARIES = {
    "reproduce": "Run the paper's figure and claims again, and say which hold.",
    "topics": "Learn topics from text.",
}


class _Commands(click.Group):
    """Sub-commands that are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(SUMMARIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in SUMMARIES:
            return None
        command: click.Command = import_module(f"odeco.cli._{cmd_name}").command
        return command


@click.group(cls=_Commands)
def main() -> None:
    """Learn the components of a tensor that is too large to store, too private to look at, or still arriving."""
