"""The gateway or cluster that a command asks, and the options that name it.

A command is a function over what it asks (`Opened`) and its own options (`asks` in `admin/commands.py`). A
reach is a context manager whose parameters are options: `gateway`, `gateway_or_cluster`,
`gateway_or_gateways` and `cluster` here, others beside the commands that need them.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeAlias, TypeVar

from seqgate.gateway.admin.client import ANSWER_TIMEOUT_S, Client, read_settings
from seqgate.gateway.admin.commands import MOST_S, AsJson, OptionsOf, flag, option, stop
from seqgate.gateway.admin.completion import topic_names
from seqgate.gateway.admin.remote.addresses import DEFAULT_ADDRESS
from seqgate.gateway.admin.request import ControlError, NotRunning
from seqgate.gateway.admin.which_cluster import addresses_to_ask, bootstrap_of, data_directory

if TYPE_CHECKING:
    from seqgate.gateway.admin.remote.cluster import Cluster
    from seqgate.gateway.admin.remote.operations import RemoteClient
    from seqgate.gateway.admin.tables import Block


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
        f"[default: SEQGATE_BOOTSTRAP, or the gateway that runs on --data-dir, or {DEFAULT_ADDRESS}]",
    ),
]
OtherCluster = Annotated[
    str | None,
    option(
        "--bootstrap",
        "HOST:PORT",
        "Ask this cluster over the Kafka protocol, Seqgate or Apache Kafka, which reports less than the "
        "control socket. [default: SEQGATE_BOOTSTRAP, or the gateway that runs on --data-dir]",
    ),
]
OtherGateways = Annotated[
    str | None,
    option(
        "--bootstrap",
        "HOST:PORT",
        "Ask all gateways of this cluster over the Kafka protocol; Apache Kafka does not know the answer. "
        "[default: SEQGATE_BOOTSTRAP, or the gateway that runs on --data-dir]",
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


def timeout_of(defaults: str) -> Any:
    """Return the option --timeout of commands that wait so long by default."""
    text = f"Give up after so many seconds without an answer. [default: {defaults}]"
    return option("--timeout", "SECONDS", text, min=1, max=MOST_S)


Timeout = Annotated[int | None, timeout_of("30, over the control socket 40, for a record of `produce` 60")]
UNCHANGED: Final = "Nothing is changed. --yes does it without asking."
A = TypeVar("A")
C = TypeVar("C")
Opened: TypeAlias = AbstractContextManager[C]
"""A client of a gateway or cluster that is not connected yet; the command connects it with `with`."""
OpenedCluster: TypeAlias = "Opened[Cluster]"


@contextmanager
def asking(
    config_file: Path | None,
    data_dir: Path | None,
    overrides: Sequence[str] = (),
    *,
    asks_gateway: bool = True,
    timeout_s: float | None = None,
) -> Iterator[Client]:
    """Yield a client of the gateway that the options name; an error ends the command with its sentence.

    `overrides` are settings as NAME=VALUE. `asks_gateway` and `timeout_s` are as in Client.
    """
    with reporting_errors():
        read_config = partial(read_settings, config_file, data_dir, overrides)
        directory = (
            Path(read_config().str("log.dirs")) if overrides else data_directory(config_file, data_dir)
        )
        try:
            yield Client(directory, read_config, asks_gateway, timeout_s or ANSWER_TIMEOUT_S)
        except NotRunning as error:
            raise stop(f"{error}; start it, or name its data directory with --data-dir") from None


@contextmanager
def reporting_errors() -> Iterator[None]:
    """End the command with the sentence of an error."""
    try:
        yield
    except ControlError as error:
        raise stop(str(error)) from None


def gateway(
    data_dir: DataDir = None, config_file: ConfigFile = None, timeout_s: Timeout = None
) -> Opened[Client]:
    """Return a client of the gateway on the data directory."""
    return asking(config_file, data_dir, timeout_s=timeout_s)


def gateway_directory(data_dir: DataDir = None, config_file: ConfigFile = None) -> Opened[Client]:
    """Return a client that reads the data directory, whether a gateway runs on it or not."""
    return asking(config_file, data_dir, asks_gateway=False)


def nobody() -> None:
    """Open nothing, for a command that chooses by itself whom it asks."""


Asker: TypeAlias = "Client | RemoteClient"
"""Asks a running gateway or another cluster."""


@contextmanager
def gateway_or_cluster(
    bootstrap: OtherCluster = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    timeout_s: Timeout = None,
) -> Iterator[Asker]:
    """Yield a client of the cluster at `bootstrap`, or else of the gateway on the data directory."""
    bootstrap = bootstrap_of(bootstrap, data_dir, config_file)
    if bootstrap is None:
        needs_bootstrap(command_config)
        with asking(config_file, data_dir, timeout_s=timeout_s) as client:
            yield client
        return
    with cluster(bootstrap, command_config, data_dir, config_file, timeout_s) as reached:
        from seqgate.gateway.admin.remote.operations import RemoteClient  # noqa: PLC0415 - slow to import

        yield RemoteClient(reached)


def gateway_or_gateways(
    bootstrap: OtherGateways = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    timeout_s: Timeout = None,
) -> Opened[Asker]:
    """Return a client as `gateway_or_cluster` does, for what only a gateway knows."""
    return gateway_or_cluster(bootstrap, command_config, data_dir, config_file, timeout_s)


@contextmanager
def cluster(
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
    timeout_s: Timeout = None,
) -> Iterator[Cluster]:
    """Yield the cluster that the options name; an error ends the command with its sentence. While the command
    waits, it says on stderr what is wrong.
    """
    bootstrap = bootstrap_of(bootstrap, data_dir, config_file)
    addresses = addresses_to_ask(bootstrap, config_file, data_dir, timeout_s or ANSWER_TIMEOUT_S)
    from seqgate.gateway.admin.remote.client_security import read_client_security  # noqa: PLC0415 - slow
    from seqgate.gateway.admin.remote.cluster import connected  # noqa: PLC0415 - slow to import
    from seqgate.gateway.admin.remote.waiting import Watch  # noqa: PLC0415 - for a cluster only

    with (
        reporting_errors(),
        Watch() as watch,
        connected(
            addresses, read_client_security(command_config), watch=watch, timeout_s=timeout_s
        ) as reached,
    ):
        yield reached


def needs_bootstrap(command_config: Path | None) -> None:
    """End with a usage error when `--command-config` meets a command that asks by the control socket."""
    if command_config is not None:
        raise stop(
            "--command-config needs --bootstrap or SEQGATE_BOOTSTRAP: the control socket has neither TLS nor "
            "logins",
            code=2,
        )


@typing.overload
def parsed_or_exit_2(parse: Callable[[str], A], text: str, option: str = "") -> A: ...
@typing.overload
def parsed_or_exit_2(parse: Callable[[str], A], text: str | None, option: str = "") -> A | None: ...
def parsed_or_exit_2(parse: Callable[[str], A], text: str | None, option: str = "") -> A | None:
    """Return what `parse` makes of the text of an option, None without one; a wrong text, for which it raises
    ValueError, ends the command with a usage error.
    """
    try:
        return None if text is None else parse(text)
    except ValueError as error:
        raise stop(f"{option}: {error}" if option else str(error), code=2) from None


def name_values_or_exit_2(texts: Sequence[str], option: str) -> dict[str, str]:
    """Return the settings of texts `NAME=VALUE`; a malformed text ends the command with a usage error."""
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise stop(f"{option}: {text!r} must have the form NAME=VALUE", code=2)
        settings[name.strip()] = value
    return settings


class Consent(NamedTuple):
    """The options of a command that can't be undone: only show what it would do, do not ask, print JSON."""

    dry_run: bool = False
    yes: bool = False
    as_json: bool = False

    @property
    def is_planned(self) -> bool:
        """Whether the command changes nothing, and asks nobody."""
        return self.dry_run or (self.as_json and not self.yes)

    def plan_ask_and_do(
        self,
        do: Callable[[bool], A],
        text: Callable[[A], Iterable[Block]],
        question: str,
        *,
        is_needed: Callable[[A], object] = lambda _: True,
        otherwise: str = UNCHANGED,
    ) -> A:
        """Return what `do(False)` plans where the command only plans, or nothing `is_needed`. Otherwise print
        the plan's `text`, ask, and return the outcome of `do(True)`; without a yes the command ends with 1.
        With `yes`, do it without a plan.
        """
        if self.dry_run or not self.yes:
            planned = do(False)
            if self.is_planned or not is_needed(planned):
                return planned
            from seqgate.gateway.admin.printing import print_blocks  # noqa: PLC0415 - to ask only

            print_blocks(text(planned))
            must_agree(question, otherwise)
        return do(True)


def consent_by(yes: Any) -> OptionsOf:
    """Return the options of a command that can't be undone; `yes` is the one by which it does not ask."""

    def consent(
        dry_run: bool = flag("--dry-run", "Only show what would be done."),
        yes: bool = yes,
        as_json: AsJson = False,
    ) -> Consent:
        return Consent(dry_run, yes, as_json)

    return OptionsOf(consent)


Consented = Annotated[Consent, consent_by(flag("--yes", "Do not ask."))]


def must_agree(question: str, otherwise: str = UNCHANGED) -> None:
    """Ask on the terminal; without a yes print `otherwise`, and end the command with 1."""
    if not is_confirmed(question):
        from seqgate.gateway.admin.printing import print_lines  # noqa: PLC0415 - to ask only

        print_lines(otherwise)
        raise SystemExit(1)


def is_confirmed(question: str) -> bool:
    """Ask on the terminal; False where there is no terminal to answer on, and without a question then."""
    if not is_answerable():
        return False
    sys.stdout.flush()  # print the subject before the question, also where stdout is no terminal
    import typer  # noqa: PLC0415 - slow to import

    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        return False


def is_answerable() -> bool:
    """Whether somebody at a terminal can answer a question."""
    return sys.stdin.isatty()
