"""Headings under which `fedctl --help` lists commands, by who uses them."""

from typing import Any

from typer.core import TyperGroup

RUNS = "Run and watch a federation"
SITES = "Clusters and hospitals"
DOCUMENTS = "Files, images and methods"
RESEARCH = "Research"
OTHER = "Other"

_ORDER = (RUNS, SITES, DOCUMENTS, RESEARCH, OTHER)


class GroupedCommands(TyperGroup):
    """Lists each command under the heading that it was given as ``rich_help_panel``, in plain text."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section per heading, and in it the commands in the order of their registration."""
        width = formatter.width - 6 - max(map(len, self.commands))
        for heading in _ORDER:
            under = {
                n: c for n, c in self.commands.items() if (getattr(c, "rich_help_panel", None) or OTHER) == heading
            }
            with formatter.section(heading):
                formatter.write_dl([(name, command.get_short_help_str(width)) for name, command in under.items()])
