"""The `seqgate` command. Functions import what they need when they run, for a quick start."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from seqgate import __version__, core
from seqgate.gateway.admin.commands import Command, Commands, stop

if TYPE_CHECKING:
    import typer

    app: typer.Typer
    """The whole command line."""

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "serve": ("serving", "serve"),
    "topics": ("admin.topics", "app"),
    "configs": ("admin.configs", "app"),
    "acls": ("admin.acls", "app"),
    "quotas": ("admin.quotas", "app"),
    "produce": ("admin.produce", "produce"),
    "consume": ("admin.consume", "consume"),
    "groups": ("admin.groups.app", "app"),
    "dead-letters": ("admin.dead_letters", "app"),
    "transactions": ("admin.transactions.hanging", "app"),
    "producers": ("admin.producers", "producers"),
    "verdicts": ("admin.verdicts", "verdicts"),
    "names": ("admin.names", "names"),
    "backlog": ("admin.backlog", "backlog"),
    "pids": ("admin.pids", "app"),
    "users": ("admin.users", "app"),
    "status": ("admin.status", "status"),
    "console": ("console.command", "console"),
    "cluster": ("admin.cluster.command", "app"),
    "faults": ("testing.control.faults_command", "app"),
    "certify": ("certify.command", "certify"),
    "logs": ("admin.logs", "logs"),
    "tasks": ("admin.tasks", "tasks"),
    "metrics": ("admin.metrics", "metrics"),
    "backup": ("admin.backup.command", "app"),
    "restart": ("admin.restart.command", "restart"),
    "reopen": ("admin.reopen", "reopen"),
    "repair": ("admin.repair", "repair"),
    "sweep": ("admin.sweep", "sweep"),
    "help": ("manual", "show"),
}
"""The commands and groups of commands in the order of the help: the module of each, and its name there."""


def found(name: str) -> Command | Commands:
    """Return a command, or a group of commands, from its module."""
    place, attribute = COMMANDS[name]
    return cast("Command | Commands", getattr(import_module(f"seqgate.gateway.{place}"), attribute))


def command_line(words: Sequence[str] | None = None) -> typer.Typer:
    """Return the command line with all commands, or with what typer needs to take these words."""
    import typer

    from seqgate.gateway.admin.help import CONTEXT, add

    made = typer.Typer(
        name="seqgate",
        help="A Kafka-compatible gateway for idempotent producers, with its own log, for Spark and every "
        "Kafka client.",
        no_args_is_help=True,
        context_settings=CONTEXT,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )

    def print_version(wanted: bool) -> None:
        if wanted:
            print(core.described(__version__))
            raise typer.Exit

    version = typer.Option(
        False, "--version", help="Print the version.", callback=print_version, is_eager=True
    )

    def options(_: bool = version) -> None:
        """Take the options that stand before a command."""

    made.callback()(options)
    for name, command in _needed(words).items():
        add(made, name, command)
    return made


def _needed(words: Sequence[str] | None) -> Mapping[str, Command | Commands]:
    """Return what the words may mean: the chosen command with its options, or all commands without."""
    if words and words[0] in COMMANDS:
        return {words[0]: _needed_of(found(words[0]), words[1:])}
    every = {name: found(name) for name in COMMANDS}
    if words is None or not COMMANDS.keys().isdisjoint(words):
        return every
    return {
        name: Commands(command.help) if isinstance(command, Commands) else _without_options(command)
        for name, command in every.items()
    }


def _needed_of(chosen: Command | Commands, words: Sequence[str]) -> Command | Commands:
    """Return what the words behind the name of a chosen command or group may mean."""
    if isinstance(chosen, Command):
        return chosen
    if words and words[0] in chosen.commands:
        return Commands(chosen.help, {words[0]: chosen.commands[words[0]]})
    if not chosen.commands.keys().isdisjoint(words):
        return chosen
    return Commands(chosen.help, {name: _without_options(each) for name, each in chosen.commands.items()})


def _without_options(command: Command) -> Command:
    return msgspec.structs.replace(command, declare=tuple)


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, command_line())


def main() -> None:
    """Run the command that the process was started with, without typer where its options are right. The first
    words choose the command, unless they are options, or a shell asks for completions.
    """
    _open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.encoding.lower().startswith("utf"):
        sys.stdout.reconfigure(errors="replace")  # no command fails for want of an arrow
    words = None if "_SEQGATE_COMPLETE" in os.environ else sys.argv[1:]
    with _output_written():
        right = parse(words or [])
        if right is not None:
            _run(*right)
        else:
            command_line(words)(prog_name="seqgate")


def _open_closed_streams() -> None:
    """Read and write /dev/null where the shell has closed a stream, as with `>&-`; Python has None for it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - as long as the process


_UNWRITABLE: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF))


@contextmanager
def _output_written() -> Iterator[None]:
    """Write all that a command prints. End with 1 when nobody reads on, or, with a sentence, when standard
    output can't be written.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        is_broken = isinstance(error, BrokenPipeError)
        if not is_broken and (error.filename is not None or error.errno not in _UNWRITABLE):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the last flush must not fail again
        if not is_broken:
            stop(f"the output can't be written: {error.strerror}")
        sys.exit(1)


def parse(words: Sequence[str]) -> tuple[Command, dict[str, Any]] | None:
    """Return the command that words choose, and the values of its parameters; None when typer must look."""
    if not words or words[0] not in COMMANDS:
        return None
    chosen, rest = found(words[0]), words[1:]
    if isinstance(chosen, Commands):
        if not rest or rest[0] not in chosen.commands:
            return None
        chosen, rest = chosen.commands[rest[0]], rest[1:]
    given = chosen.parse(rest)
    return None if given is None else (chosen, given)


def _run(chosen: Command, given: dict[str, Any]) -> None:
    """Run a command, and end as typer does: on Ctrl-C, and at the end of the input."""
    try:
        chosen(**given)
    except KeyboardInterrupt:
        sys.exit(130)
    except EOFError:
        print("\nAborted!", file=sys.stderr)
        sys.exit(1)
