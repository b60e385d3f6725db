"""The `seqgate` command.

Functions import what they need when they run, so that a command answers soon. `seqgate.gateway.entry` runs `serve`
without this module.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seqgate import __version__
from seqgate.gateway.admin.acls import command as acls
from seqgate.gateway.admin.backlog import command as backlog
from seqgate.gateway.admin.backup import command as backup
from seqgate.gateway.admin.cluster import command as bucket
from seqgate.gateway.admin.configs import command as configs
from seqgate.gateway.admin.damage import command as damage
from seqgate.gateway.admin.faults import command as faults
from seqgate.gateway.admin.groups import command as groups
from seqgate.gateway.admin.help import CONTEXT, tidy
from seqgate.gateway.admin.logs import command as logs
from seqgate.gateway.admin.names import command as names
from seqgate.gateway.admin.options import option
from seqgate.gateway.admin.partitions import command as partitions
from seqgate.gateway.admin.pids import command as pids
from seqgate.gateway.admin.producers import command as producers
from seqgate.gateway.admin.quotas import command as quotas
from seqgate.gateway.admin.records.consume_command import consume
from seqgate.gateway.admin.records.produce_command import produce
from seqgate.gateway.admin.status import command as status
from seqgate.gateway.admin.sweep import command as sweep
from seqgate.gateway.admin.topics import command as topics
from seqgate.gateway.admin.transactions import command as transactions
from seqgate.gateway.admin.users import command as users
from seqgate.gateway.admin.verdicts import command as verdicts
from seqgate.gateway.certify.command import certify
from seqgate.gateway.console.command import console
from seqgate.gateway.serving import Options
from seqgate.gateway.serving import serve as run_gateway

app = typer.Typer(
    name="seqgate",
    help="A Kafka-compatible gateway for idempotent producers, with its own log, for Spark and every Kafka "
    "client.",
    no_args_is_help=True,
    context_settings=CONTEXT,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

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


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options that stand before a command."""


@app.command()
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
    code = run_gateway(
        Options(
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


app.add_typer(topics.app, name="topics", help=topics.HELP)
app.add_typer(configs.app, name="configs", help=configs.HELP)
app.add_typer(acls.app, name="acls", help=acls.HELP)
app.add_typer(quotas.app, name="quotas", help=quotas.HELP)
app.command("produce")(produce)
app.command("consume")(consume)
app.add_typer(groups.app, name="groups", help=groups.HELP)
app.add_typer(transactions.app, name="transactions", help=transactions.HELP)
app.command("producers")(producers.producers)
app.command("verdicts")(verdicts.verdicts)
app.command("names")(names.names)
app.command("backlog")(backlog.backlog)
app.add_typer(pids.app, name="pids", help=pids.HELP)
app.add_typer(users.app, name="users", help=users.HELP)
app.command("status")(status.status)
app.command("console")(console)
app.add_typer(bucket.app, name="cluster", help=bucket.HELP)
app.add_typer(faults.app, name="faults", help=faults.HELP)
app.command("certify")(certify)
app.command("logs")(logs.logs)
app.command("tasks")(sweep.tasks)
app.add_typer(backup.app, name="backup", help=backup.HELP)
app.command("reopen")(partitions.reopen)
app.command("repair")(damage.repair)
app.command("sweep")(sweep.sweep)
tidy(app)


def main() -> None:
    """Run the command that the process was started with."""
    app(prog_name="seqgate")
