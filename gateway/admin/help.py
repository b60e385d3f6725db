"""The commands as typer takes them, for help, completion and wrong options. Their summaries are not cut."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Container
from typing import Annotated, Any, Final

import typer
from typer.core import TyperArgument, TyperCommand

from seqgate.gateway.admin.commands import Command, Commands, Parameter, option_of
from seqgate.gateway.admin.request import nearest_hint

WIDEST: Final = 120
"""Columns of help on a wide terminal."""
_DEFAULT: Final = re.compile(r"(?<=\[default: )\(([^)]*)\)")
_OF_PYTHON: Final = "Value error, "
_NO_CHOICE: Final = re.compile(r"'([^']*)' is not one of (.*)", re.DOTALL)
_NO_FILE: Final = re.compile(r"file '([^']+=[^']*)' does not exist\.?", re.IGNORECASE)
_IN_BRACES: Final = re.compile(r"\{([^}]*)\}")

CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": WIDEST}
"""The settings that all commands inherit from the app."""


class PlainCommand(TyperCommand):
    """A command whose help names an argument as its metavar does, without braces or Python's types. A wrong
    value is answered with what was probably meant.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words after the command."""
        try:
            rest: list[str] = super().parse_args(ctx, args)
        except typer.BadParameter as error:
            options = {name for each in self.get_params(ctx) for name in each.opts}
            error.message = _with_hint(error.message, options)
            raise
        return rest

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
                text = _DEFAULT.sub(r"\1", record[1]).removesuffix("[required]").rstrip()
                sections["Arguments"].append((parameter.display_name_raw, text))
            else:
                sections["Options"].append((record[0], _DEFAULT.sub(r"\1", record[1])))
        for heading, rows in sections.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


def _with_hint(message: str, options: Container[str]) -> str:
    """Return what is wrong with a value, with the nearest valid value or the option that was meant."""
    message = message.removeprefix(_OF_PYTHON)
    choice = _NO_CHOICE.fullmatch(message)
    if choice is not None:
        near = nearest_hint(choice[1], re.findall(r"'([^']*)'", choice[2]))
        return message.removesuffix(".") + near
    setting = _NO_FILE.fullmatch(message)
    if setting is not None and "--set" in options:
        return f"{message.removesuffix('.')}; a configuration is set by --set {setting[1]}"
    return message


def add(app: typer.Typer, name: str, added: Command | Commands) -> None:
    """Add a command, or a group of commands, to an app."""
    if isinstance(added, Commands):
        group = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
        for word, command in added.commands.items():
            add(group, word, command)
        app.add_typer(group, name=name, help=added.help, short_help=added.help.partition("\n")[0])
    else:
        app.command(name, cls=PlainCommand, short_help=_summary(added.help))(_callback(added))


def _callback(command: Command) -> Callable[..., None]:
    """Return the function from whose parameters typer makes the options of a command."""

    def callback(**given: Any) -> None:
        command(**given)

    callback.__doc__ = command.help
    callback.__annotations__ = {}
    callback.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        list(map(_typed, command.parameters))
    )
    return callback


def _typed(parameter: Parameter) -> inspect.Parameter:
    mark = option_of(parameter)
    facts = dict(mark.facts)
    largest = facts.pop("max", None)  # typer would show the range of every --timeout in the help
    if largest is not None:
        facts["callback"] = _at_most(largest)
    given = typer.Argument(**facts) if mark.names is None else typer.Option(*mark.names, **facts)
    return inspect.Parameter(
        parameter.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=parameter.default,
        annotation=Annotated[parameter.type, given],
    )


def _at_most(largest: int) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if value is not None and value > largest:
            raise typer.BadParameter(f"{value} must be less than or equal to {largest}.")
        return value

    return check


def _summary(text: str) -> str:
    return " ".join(text.strip().partition("\n\n")[0].split()).partition(". ")[0].rstrip(".") + "."
