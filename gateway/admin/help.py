"""The help of commands: arguments by their names, summaries that are not cut."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import typer
from typer.core import TyperArgument, TyperCommand

WIDEST: Final = 120
"""Columns of help on a wide terminal."""
_DEFAULT: Final = re.compile(r"(?<=\[default: )\(([^)]*)\)")
_IN_BRACES: Final = re.compile(r"\{([^}]*)\}")

CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": WIDEST}
"""The settings that all commands inherit from the app."""


class Command(TyperCommand):
    """A command whose help names an argument as its metavar does, without braces and without Python's types."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the usage line: `TOPIC...` instead of `{TOPIC}...`."""
        return [_IN_BRACES.sub(r"\1", piece) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the sections of arguments and options."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            if isinstance(parameter, TyperArgument):
                sections["Arguments"].append(
                    (parameter.display_name_raw, _without_required(_DEFAULT.sub(r"\1", record[1])))
                )
            else:
                sections["Options"].append((record[0], _DEFAULT.sub(r"\1", record[1])))
        for heading, rows in sections.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


def _without_required(text: str) -> str:
    return text.removesuffix("[required]").rstrip()


def tidy(app: typer.Typer) -> None:
    """Use `Command` for every command of an app and of its sub-apps."""
    for command in app.registered_commands:
        command.cls = Command
        command.short_help = _summary(command.callback)
    for group in app.registered_groups:
        group.short_help = (group.help or "").partition("\n")[0]
        if group.typer_instance is not None:
            tidy(group.typer_instance)


def _summary(function: Callable[..., Any] | None) -> str:
    """Return the first sentence of a command's description."""
    first = (function.__doc__ if function is not None else None) or ""
    return " ".join(first.strip().partition("\n\n")[0].split()).partition(". ")[0].rstrip(".") + "."
