"""Gives every command the options of the gateway or cluster that it asks, prints its output, and ends it.

A command is a function over what it asks (`Opened`) and its own options. It returns an `Output`: the document
of `--json`, and the tables and sentences for people. `asks` adds the options of its reach behind the
command's own, then `--json`, and prints the output. A reach is a context manager whose parameters are
options: `gateway`, `gateway_or_cluster` and `cluster` here, others beside the commands that need them.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Concatenate,
    Final,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
)

import typer

from seqgate.gateway.admin.client import Client, ask
from seqgate.gateway.admin.completion import topic_names
from seqgate.gateway.admin.printing import print_blocks, print_json
from seqgate.gateway.admin.remote.addresses import DEFAULT_ADDRESS, LOOPBACK, parse_addresses
from seqgate.gateway.admin.request import ControlError, NotRunning, Request
from seqgate.gateway.admin.status.messages import StatusRequest
from seqgate.gateway.admin.tables import Block
from seqgate.gateway.config import Config, ConfigError, load_config

if TYPE_CHECKING:
    from seqgate.gateway.admin.remote.cluster import Cluster


def option(names: str, metavar: str, text: str, *, show_default: bool | str = False, **more: Any) -> Any:
    """Return an option that takes a value, such as `--lines -n`; `text` is its help."""
    return typer.Option(*names.split(), metavar=metavar, help=text, show_default=show_default, **more)


def argument(metavar: str, text: str, *, show_default: bool | str = False, **more: Any) -> Any:
    """Return an argument; `text` is its help."""
    return typer.Argument(metavar=metavar, help=text, show_default=show_default, **more)


OnlyTopic = Annotated[
    str | None, option("--topic", "TOPIC", "Only this topic.", show_default="all", autocompletion=topic_names)
]
OnlyPartition = Annotated[
    int | None, option("--partition", "N", "Only this partition of the topic.", show_default="all", min=0)
]
DataDir = Annotated[
    Path | None,
    option(
        "--data-dir",
        "DIRECTORY",
        "The gateway's data directory (log.dirs). [default: ./data, or as configured]",
    ),
]
ConfigFile = Annotated[
    Path | None,
    option("--config", "FILE", "The gateway's settings file, when it has one.", exists=True, dir_okay=False),
]
Bootstrap = Annotated[
    str | None,
    option(
        "--bootstrap",
        "HOST:PORT",
        "The cluster to ask, Seqgate or Apache Kafka; several addresses are separated by commas. "
        f"[default: the gateway that runs on --data-dir, or {DEFAULT_ADDRESS}]",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


OtherCluster = Annotated[
    str | None,
    option(
        "--bootstrap",
        "HOST:PORT",
        "Ask this cluster over the Kafka protocol, Seqgate or Apache Kafka, which reports less than the "
        "control socket. "
        "[default: the gateway that runs on --data-dir]",
    ),
]
CommandConfig = Annotated[
    Path | None,
    option(
        "--command-config",
        "FILE",
        "Kafka's client properties for a cluster with TLS or logins: security.protocol, ssl.*, "
        "sasl.mechanism, sasl.jaas.config.",
        exists=True,
        dir_okay=False,
    ),
]
AS_JSON: Final = "as_json"
A = TypeVar("A")
C = TypeVar("C")
P = ParamSpec("P")
Opened: TypeAlias = AbstractContextManager[C]
"""A client of a gateway or cluster that is not connected yet; the command connects it with `with`."""
OpenedCluster: TypeAlias = "Opened[Cluster]"


class Output(NamedTuple):
    """The output of a command, and its exit code.

    `document` is what `--json` prints, `text` the tables and sentences otherwise. Each of `refusals` is
    printed on stderr after either of them; with any, the command exits with 1.
    """

    document: Any
    text: Iterable[Block] = ()
    code: int = 0
    refusals: Sequence[str] = ()


class OptionsOf(NamedTuple):
    """Marks a parameter whose value `make` returns; the parameters of `make` are the options."""

    make: Callable[..., Any]


def asks(
    reach: Callable[..., C], *, first: bool = False
) -> Callable[[Callable[Concatenate[C, P], Output | None]], Callable[..., None]]:
    """Make a command of a function that asks what `reach` returns.

    The command has the options of the function, of `reach` (before them with `first`), and `--json`. It calls
    the function with what `reach` returns, in most cases not opened yet, so that a wrong option is reported
    before anybody is asked. A function that prints by itself returns None, and takes `as_json` if it needs
    it.
    """

    def command(function: Callable[Concatenate[C, P], Output | None]) -> Callable[..., None]:
        own, of_reach = _parameters(function, first=1), _parameters(reach)
        prints_itself = any(each.name == AS_JSON for each in own)
        made = {each.name: mark.make for each in own for mark in _marks(each)}

        def take(make: Callable[..., Any], given: dict[str, Any]) -> Any:
            return make(**{each.name: given.pop(each.name) for each in _parameters(make)})

        @functools.wraps(function)
        def run(**given: Any) -> None:
            opened = take(reach, given)
            as_json: bool = given[AS_JSON] if prints_itself else given.pop(AS_JSON)
            given |= {name: take(make, given) for name, make in made.items()}
            output = typing.cast("Callable[..., Output | None]", function)(opened, **given)
            if output is not None:
                _end(output, as_json=as_json)

        last = [each for each in own if each.name == AS_JSON] or [_JSON_PARAMETER]
        own = [
            part
            for each in own
            if each.name != AS_JSON
            for part in (_parameters(made[each.name]) if each.name in made else [each])
        ]
        parameters = [*of_reach, *own, *last] if first else [*own, *of_reach, *last]
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # typer reads the options here
            [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
        )
        run.__annotations__ = {}
        del run.__wrapped__  # typer must not see the function's own parameters
        return run

    return command


_JSON_PARAMETER: Final = inspect.Parameter(
    AS_JSON, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=AsJson
)


def _marks(parameter: inspect.Parameter) -> list[OptionsOf]:
    return [each for each in getattr(parameter.annotation, "__metadata__", ()) if isinstance(each, OptionsOf)]


def _parameters(function: Callable[..., Any], first: int = 0) -> list[inspect.Parameter]:
    """Return the parameters of a function from number `first` on, with their types.

    Neither the types before nor that of the result are evaluated; they may be imported for the type checker
    alone.
    """
    written = inspect.unwrap(function)
    parameters = list(inspect.signature(written).parameters.values())[first:]

    def typed() -> None: ...

    typed.__annotations__ = {each.name: each.annotation for each in parameters}
    types = typing.get_type_hints(typed, written.__globals__, include_extras=True)
    return [each.replace(annotation=types[each.name]) for each in parameters]


def _end(output: Output, *, as_json: bool) -> None:
    """Print an output, and end the command unless all is well."""
    if as_json:
        print_json(output.document)
    else:
        print_blocks(output.text)
    for sentence in output.refusals:
        stop(sentence)
    code = output.code or bool(output.refusals)
    if code:
        raise typer.Exit(int(code))


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
    with reporting_errors():
        try:
            yield Client(Path(config.str("log.dirs")), config, asks_gateway)
        except NotRunning as error:
            raise stop(f"{error}; start it, or name its data directory with --data-dir") from None


@contextmanager
def reporting_errors() -> Iterator[None]:
    """End the command with the sentence of an error."""
    try:
        yield
    except ControlError as error:
        raise stop(str(error)) from None


@contextmanager
def gateway(data_dir: DataDir = None, config_file: ConfigFile = None) -> Iterator[Client]:
    """Yield a client of the gateway on the data directory."""
    with asking(config_file, data_dir) as client:
        yield client


@contextmanager
def gateway_directory(data_dir: DataDir = None, config_file: ConfigFile = None) -> Iterator[Client]:
    """Yield a client that reads the data directory, whether a gateway runs on it or not."""
    with asking(config_file, data_dir, asks_gateway=False) as client:
        yield client


def nobody() -> None:
    """Open nothing, for a command that chooses by itself whom it asks."""


class Asker(Protocol):
    """Asks a running gateway or another cluster."""

    def ask(self, request: Request[A]) -> A:
        """Return the answer, of a list all pages in one."""

    def ask_or_read(self, request: Request[A]) -> tuple[str, A]:
        """Return "running" with the answer, or "stopped" with what the data directory holds."""


@contextmanager
def gateway_or_cluster(
    bootstrap: OtherCluster = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
) -> Iterator[Asker]:
    """Yield a client of the cluster at `bootstrap`, or else of the gateway on the data directory."""
    if bootstrap is None:
        needs_bootstrap(command_config)
        with asking(config_file, data_dir) as client:
            yield client
        return
    with cluster(bootstrap, command_config, data_dir, config_file) as reached:
        from seqgate.gateway.admin.remote.operations import RemoteClient  # noqa: PLC0415 - slow to import

        yield RemoteClient(reached)


@contextmanager
def cluster(
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
) -> Iterator[Cluster]:
    """Yield the cluster that the options name; an error ends the command with its sentence."""
    addresses = _addresses(bootstrap, config_file, data_dir)
    from seqgate.gateway.admin.remote.client_security import read_client_security  # noqa: PLC0415 - slow to import
    from seqgate.gateway.admin.remote.cluster import connected  # noqa: PLC0415 - slow to import

    with reporting_errors(), connected(addresses, read_client_security(command_config)) as reached:
        yield reached


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


@typing.overload
def parsed(parse: Callable[[str], A], text: str, option: str = "") -> A: ...
@typing.overload
def parsed(parse: Callable[[str], A], text: str | None, option: str = "") -> A | None: ...
def parsed(parse: Callable[[str], A], text: str | None, option: str = "") -> A | None:
    """Return what `parse` makes of the text of an option, None without one; a wrong text, for which it raises
    ValueError, ends the command with a usage error.
    """
    try:
        return None if text is None else parse(text)
    except ValueError as error:
        raise stop(f"{option}: {error}" if option else str(error), code=2) from None


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
