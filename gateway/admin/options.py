"""Options that several commands take, and how a command ends with an error."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, TypeVar

import typer

from seqgate.gateway.admin.client import Client, ask
from seqgate.gateway.admin.completion import topic_names
from seqgate.gateway.admin.remote.addresses import DEFAULT_ADDRESS, LOOPBACK, parse_addresses
from seqgate.gateway.admin.request import ControlError, NotRunning, Request
from seqgate.gateway.admin.status.messages import StatusRequest
from seqgate.gateway.config import Config, ConfigError, load_config

if TYPE_CHECKING:
    from seqgate.gateway.admin.remote.cluster import Cluster

OnlyTopic = Annotated[
    str | None,
    typer.Option(
        "--topic", metavar="TOPIC", help="Only this topic.", autocompletion=topic_names, show_default="all"
    ),
]
OnlyPartition = Annotated[
    int | None,
    typer.Option(
        "--partition", metavar="N", help="Only this partition of the topic.", min=0, show_default="all"
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIRECTORY",
        help="The gateway's data directory (log.dirs). [default: ./data, or as configured]",
        show_default=False,
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The gateway's settings file, when it has one.",
        exists=True,
        dir_okay=False,
        show_default=False,
    ),
]
Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        metavar="HOST:PORT",
        help="The cluster to ask, Seqgate or Apache Kafka; several addresses are separated by commas. "
        f"[default: the gateway that runs on --data-dir, or {DEFAULT_ADDRESS}]",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


OtherCluster = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        metavar="HOST:PORT",
        help="Ask this cluster over the Kafka protocol, Seqgate or Apache Kafka, which reports less than the "
        "control socket. "
        "[default: the gateway that runs on --data-dir]",
        show_default=False,
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="Kafka's client properties for a cluster with TLS or logins: security.protocol, ssl.*, "
        "sasl.mechanism, sasl.jaas.config.",
        exists=True,
        dir_okay=False,
        show_default=False,
    ),
]
A = TypeVar("A")


def stop(sentence: str, code: int = 1) -> typer.Exit:
    """Print a sentence on stderr and return the exit to raise."""
    print(f"seqgate: {sentence}", file=sys.stderr)
    return typer.Exit(code)


@contextmanager
def asking(
    config_file: Path | None,
    data_dir: Path | None,
    overrides: Sequence[str] = (),
    *,
    asks_gateway: bool = True,
) -> Iterator[Client]:
    """Yield a client of the gateway that the options name; an error ends the command with its sentence.

    `overrides` are settings as NAME=VALUE. `asks_gateway` is as in Client.
    """
    config = _configured(config_file, data_dir, overrides)
    try:
        yield Client(Path(config.str("log.dirs")), config, asks_gateway)
    except NotRunning as error:
        raise stop(f"{error}; start it, or name its data directory with --data-dir") from None
    except ControlError as error:
        raise stop(str(error)) from None


class Asker(Protocol):
    """Asks a running gateway or another cluster."""

    def ask(self, request: Request[A]) -> A:
        """Return the answer."""

    def ask_all(self, request: Request[A]) -> list[A]:
        """Return all pages of the answer, at least one."""

    def ask_or_read_all(self, request: Request[A]) -> tuple[str, list[A]]:
        """Return "running" with all pages of the answer, or "stopped" with what the data directory holds."""


@contextmanager
def asking_either(
    bootstrap: str | None, config_file: Path | None, data_dir: Path | None, command_config: Path | None
) -> Iterator[Asker]:
    """Yield a client of the cluster at `bootstrap`, or else of the gateway on the data directory."""
    if bootstrap is None:
        needs_bootstrap(command_config)
        with asking(config_file, data_dir) as client:
            yield client
        return
    with reaching(bootstrap, config_file, data_dir, command_config) as cluster:
        from seqgate.gateway.admin.remote.operations import RemoteClient  # noqa: PLC0415 - slow to import

        yield RemoteClient(cluster)


@contextmanager
def reaching(
    bootstrap: str | None, config_file: Path | None, data_dir: Path | None, command_config: Path | None
) -> Iterator[Cluster]:
    """Yield the cluster that the options name; an error ends the command with its sentence."""
    addresses = _addresses(bootstrap, config_file, data_dir)
    from seqgate.gateway.admin.remote.client_security import read_client_security  # noqa: PLC0415 - slow to import
    from seqgate.gateway.admin.remote.cluster import connected  # noqa: PLC0415 - slow to import

    try:
        with connected(addresses, read_client_security(command_config)) as cluster:
            yield cluster
    except ControlError as error:
        raise stop(str(error)) from None


def needs_bootstrap(command_config: Path | None) -> None:
    """End the command with a usage error when `--command-config` is given to a command that asks by the
    control socket.
    """
    if command_config is not None:
        raise stop(
            "--command-config needs --bootstrap: the control socket has neither TLS nor logins", code=2
        )


def _addresses(
    bootstrap: str | None, config_file: Path | None, data_dir: Path | None
) -> tuple[tuple[str, int], ...]:
    """Return the addresses of `--bootstrap`, of the gateway that runs on the data directory, or the default
    address.
    """
    if bootstrap is not None and data_dir is not None:
        raise stop("name the cluster either with --bootstrap or with --data-dir", code=2)
    if bootstrap is not None:
        try:
            return parse_addresses(bootstrap)
        except ValueError as error:
            raise stop(f"--bootstrap: {error}", code=2) from None
    directory = Path(_configured(config_file, data_dir, ()).str("log.dirs"))
    try:
        bound = next(iter(ask(directory, StatusRequest()).bound.values()))
    except NotRunning as error:
        if data_dir is not None:
            raise stop(f"{error}; start it, or name another cluster with --bootstrap") from None
        bound = DEFAULT_ADDRESS
    except ControlError as error:
        raise stop(str(error)) from None
    return tuple((LOOPBACK.get(host, host), port) for host, port in parse_addresses(bound))


def _configured(config_file: Path | None, data_dir: Path | None, overrides: Sequence[str]) -> Config:
    """Load the settings as the gateway does; a wrong setting ends the command with its sentence."""
    directory = () if data_dir is None else (f"log.dirs={data_dir}",)
    try:
        return load_config(config_file, os.environ, (*directory, *overrides))
    except ConfigError as error:
        raise stop(str(error)) from None


def name_values(texts: Sequence[str], option: str) -> dict[str, str]:
    """Return the settings of texts `NAME=VALUE`; a malformed text ends the command with a usage error."""
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise stop(f"{option}: {text!r} must have the form NAME=VALUE", code=2)
        settings[name.strip()] = value
    return settings


def is_confirmed(question: str) -> bool:
    """Ask on the terminal; False where there is no terminal to answer on."""
    sys.stdout.flush()  # print the subject of the question before the question itself, also where stdout is no terminal
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        return False
