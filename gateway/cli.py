"""The `seqgate` command.

Functions import what they need when they run, so that a command answers soon. `seqgate.gateway.entry` runs
`serve` without this module.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from seqgate import __version__
from seqgate.gateway.admin.help import CONTEXT, tidy
from seqgate.gateway.admin.options import option

if TYPE_CHECKING:
    app: typer.Typer
    """The whole command line."""

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "serve": ("cli", "serve"),
    "topics": ("admin.topics.command", "app"),
    "configs": ("admin.configs.command", "app"),
    "acls": ("admin.acls.command", "app"),
    "quotas": ("admin.quotas.command", "app"),
    "produce": ("admin.records.produce_command", "produce"),
    "consume": ("admin.records.consume_command", "consume"),
    "groups": ("admin.groups.command", "app"),
    "transactions": ("admin.transactions.command", "app"),
    "producers": ("admin.producers.command", "producers"),
    "verdicts": ("admin.verdicts.command", "verdicts"),
    "names": ("admin.names.command", "names"),
    "backlog": ("admin.backlog.command", "backlog"),
    "pids": ("admin.pids.command", "app"),
    "users": ("admin.users.command", "app"),
    "status": ("admin.status.command", "status"),
    "console": ("console.command", "console"),
    "cluster": ("admin.cluster.command", "app"),
    "faults": ("admin.faults.command", "app"),
    "certify": ("certify.command", "certify"),
    "logs": ("admin.logs.command", "logs"),
    "tasks": ("admin.sweep.command", "tasks"),
    "backup": ("admin.backup.command", "app"),
    "reopen": ("admin.partitions.command", "reopen"),
    "repair": ("admin.damage.command", "repair"),
    "sweep": ("admin.sweep.command", "sweep"),
}
"""The commands and groups of commands in the order of the help: the module of each, and its name there."""

ConfigFile = Annotated[
    Path | None, option("--config", "FILE", "A TOML file with settings.", exists=True, dir_okay=False)
]
DataDir = Annotated[
    Path | None, option("--data-dir", "DIRECTORY", "The data directory (log.dirs). [default: ./data]")
]
Cluster = Annotated[
    str | None,
    option(
        "--cluster",
        "ADDRESS",
        "The bucket, or the directory, in which records are durable: s3://BUCKET/PREFIX or "
        "file:///DIRECTORY.",
    ),
]
Workers = Annotated[
    int | None,
    option(
        "--workers",
        "N",
        "Serve the data directory, or the bucket, with N processes, each a broker on the next port. "
        "[default: 1]",
    ),
]
TestControl = Annotated[
    str | None,
    option(
        "--test-control",
        "HOST:PORT",
        "Let programs on this machine order faults and move the clock (docs/testing.md). For tests only.",
    ),
]
ExitWith = Annotated[
    int | None,
    option(
        "--exit-with",
        "PID",
        "With --test-control: stop when the process with this id, that of the test, has ended, however "
        "it ended.",
        min=1,
    ),
]
Settings = Annotated[
    list[str] | None, option("--set", "NAME=VALUE", "A setting (docs/configuration.md); may be repeated.")
]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"seqgate {__version__}")
        raise typer.Exit


def _options(
    _: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options that stand before a command."""


def serve(
    listen: Annotated[
        list[str] | None,
        option(
            "--listen",
            "HOST:PORT",
            "The address to listen on, also as NAME://HOST:PORT; may be repeated. [default: 127.0.0.1:9092]",
        ),
    ] = None,
    data_dir: DataDir = None,
    cluster: Cluster = None,
    workers: Workers = None,
    settings: Settings = None,
    config_file: ConfigFile = None,
    guide: Annotated[bool, typer.Option("--guide", help="Also print a first command to try.")] = False,
    with_console: Annotated[
        bool,
        typer.Option(
            "--console", help="Also run the console beside the gateway, on 127.0.0.1:8080 if that is free."
        ),
    ] = False,
    test_control: TestControl = None,
    exit_with: ExitWith = None,
) -> None:
    """Run the gateway until Ctrl-C or SIGTERM. Print one line when the gateway answers."""
    from seqgate.gateway import serving

    code = serving.serve(
        serving.Options(
            listen or (),
            data_dir,
            settings or (),
            config_file,
            guide,
            with_console,
            cluster,
            workers,
            test_control,
            exit_with,
        )
    )
    if code:
        raise typer.Exit(code)


def command_line(only: str | None = None) -> typer.Typer:
    """Return the command line with all commands, or with one of COMMANDS, which imports what this one needs."""
    made = typer.Typer(
        name="seqgate",
        help="A Kafka-compatible gateway for idempotent producers, with its own log, for Spark and every "
        "Kafka client.",
        no_args_is_help=True,
        context_settings=CONTEXT,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    made.callback()(_options)
    for name, (place, attribute) in COMMANDS.items():
        if only in {None, name}:
            module = import_module(f"seqgate.gateway.{place}")
            found = getattr(module, attribute)
            if isinstance(found, typer.Typer):
                made.add_typer(found, name=name, help=module.HELP)
            else:
                made.command(name)(found)
    tidy(made)
    return made


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, command_line())


def main() -> None:
    """Run the command that the process was started with. The first word chooses the command, unless it is an
    option, or a shell asks for completions.
    """
    word = "" if "_SEQGATE_COMPLETE" in os.environ else "".join(sys.argv[1:2])
    command_line(word if word in COMMANDS else None)(prog_name="seqgate")
