"""A page of the console, with its name in the navigation and its endpoints; and a visit of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Generic, NamedTuple, TypeVar

from seqgate.gateway.admin.remote.client_security import ClientSecurity
from seqgate.gateway.admin.remote.cluster import Cluster
from seqgate.gateway.admin.remote.operations import RemoteClient
from seqgate.gateway.admin.request import ControlError, Request, Unreachable
from seqgate.gateway.admin.status import StatusRequest, cluster_status
from seqgate.gateway.console.answer import Data, PageAnswer, View
from seqgate.gateway.console.asking.connections import Cache, Server, kept, may_describe_cluster, server_of
from seqgate.gateway.console.asking.gateways import MOST_GATEWAYS, PartialCluster, Replies
from seqgate.gateway.console.console import Console
from seqgate.gateway.console.metrics.gateways import Summary
from seqgate.gateway.console.metrics.history import DAY_MS, HOUR_MS, QUARTER_MS, History, Key
from seqgate.gateway.console.metrics.listener import MetricsClient
from seqgate.gateway.console.metrics.rates import BYTES_IN
from seqgate.gateway.console.rights import (
    FIELDS,
    MissingRight,
    missing_right,
    needed_on_cluster,
    right_on_cluster,
)

# A visit: one request of one person to a page.

status_of: Final = kept(3.0)(cluster_status)
"""The state of the brokers; one that is a few seconds old counts."""
_servers: Final[Cache[Server]] = Cache(60.0, is_lasting=True)
CONFIRMED: Final = "confirmed"
"""The field of a form with which the person confirms a change."""
_LONGEST_NUMBER: Final = 20
RANGES: Final = {"15m": QUARTER_MS, "1h": HOUR_MS, "6h": 6 * HOUR_MS, "24h": DAY_MS}
"""The ranges of time of charts, by their names in addresses; static/islands/chart.js has them too."""
DEFAULT_RANGE: Final = "15m"

A = TypeVar("A")


class NoGateways(ControlError):
    """The brokers of the cluster are those of Apache Kafka, or gateways of an earlier release."""


class Gathered(NamedTuple, Generic[A]):
    """The answers of the gateways and workers of a cluster to one question; there is at least one. `silent`
    has a sentence about each gateway without an answer, `of` counts all gateways. `note` says why the brokers
    did not answer, if the listeners of --metrics were asked instead.
    """

    answers: Sequence[A]
    silent: Sequence[str]
    of: int
    note: str | None = None

    @property
    def is_several(self) -> bool:
        """Whether each row must name its gateway."""
        return self.of > 1

    @property
    def trouble(self) -> str | None:
        """Return the sentences of `silent` as one; None when every gateway answered."""
        return "; ".join(self.silent) or None


@dataclass(frozen=True, slots=True)
class Visit:
    """A request with all that a page may use. Its names map to their values.

    `security` is how this person connects, `path` has the values in the address, `query` those after the
    question mark, `form` those of a form that was sent.
    """

    console: Console
    security: ClientSecurity
    session_id: str
    address: str
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)
    form: Mapping[str, Sequence[str]] = field(default_factory=dict)
    uploads: Mapping[str, bytes] = field(default_factory=dict)
    operation: str = "describe"
    """The operation of Kafka's ACLs that this request needs."""

    @property
    def user(self) -> str:
        """The name with which the person logged in; empty without logins."""
        return self.security.username

    @property
    def is_confirmed(self) -> bool:
        return self.text(CONFIRMED) == "yes"

    def cluster(self) -> AbstractContextManager[Cluster]:
        """Return the cluster, connected as the person. Raises ControlError, as `Connections.lend`."""
        return self.console.connections.lend(self.security)

    def partial(self) -> AbstractContextManager[PartialCluster]:
        """Return the cluster for pages that show what some brokers tell while others are silent; for changes,
        and for what needs all brokers, use `cluster`. Raises ControlError, as `cluster`.
        """
        return self.console.connections.lend_partial(self.security)

    def ask(self, request: Request[A]) -> A:
        """Return the answer of the cluster to the request of a command. Raises ControlError, as `cluster`."""
        with self.cluster() as cluster:
            return RemoteClient(cluster).ask(request)

    @property
    def server(self) -> Server | None:
        """The cluster as this person's last pages have found it, for the head of every page."""
        return _servers.known(self.security, self.console.options)

    def find_server(self) -> None:
        """Find out which cluster this is, once a minute; a page that works does not fail for it."""
        with suppress(ControlError):
            _servers.get(self.security, self.console.options, self._asked_server)

    def _asked_server(self) -> Server:
        with self.partial() as cluster:
            server = server_of(cluster)
        self.console.sampler.learn_cluster(server.cluster_id)
        gateway, _ = self.told(StatusRequest())
        return server if gateway is None else server._replace(version=f"Seqgate {gateway.version}")

    def told(self, request: Request[A]) -> tuple[A, None] | tuple[None, str | None]:
        """Return the answer of the gateway behind --metrics to a request of the control socket that only
        reads, or why it is missing; neither without --metrics.
        """
        if not self.has_metrics:
            return None, None
        try:
            return self.listener().view(request), None
        except ControlError as error:
            return None, str(error)

    def ask_gateways(self, request: Request[A]) -> Gathered[A]:
        """Return the answers of all gateways and workers of the cluster to this person, or of the listeners
        of --metrics if no broker answers. Raises ControlError when nobody answers, and NoGateways when the
        brokers are Apache Kafka's, or of an earlier release.
        """
        failed: ControlError | None = None
        try:
            with self.console.connections.lend_asker(self.security) as asker:
                replies = asker.ask(request)
        except ControlError as error:
            failed, replies = error, Replies()
        if any(row.answer is not None for row in replies.rows):
            return _gathered(replies)
        trouble = self._trouble(replies) if failed is None else str(failed)
        if self.console.listeners and not any(row.is_elsewhere for row in replies.rows):
            self.listener()  # checks the right of this person
            listeners = self.console.listeners
            # a view takes no numbers by node id, so it gives all
            told = _gathered(Replies([each.reply(request) for each in listeners], len(listeners)))
            if told.answers:
                return told._replace(of=max(told.of, replies.of), note=trouble)
            trouble = "; ".join(filter(None, (trouble, *told.silent)))
        if failed is not None:
            raise failed
        if trouble is None:
            raise NoGateways(
                "only a Seqgate gateway tells this; the brokers are others, or of an earlier release"
            )
        raise ControlError(trouble) if replies.trouble is None else Unreachable(replies.trouble)

    def _trouble(self, replies: Replies[A]) -> str | None:
        """Return why no broker answered; None for brokers that don't know such questions."""
        troubles = list(dict.fromkeys(row.trouble for row in replies.rows if row.trouble is not None))
        if len(troubles) > 1:
            return "; ".join(row.silence for row in replies.rows)
        trouble = troubles[0] if troubles else None
        operation = None if trouble is None else needed_on_cluster(trouble)
        if operation is None:
            return trouble
        return right_on_cluster(self.user, operation).advice

    def told_by_gateways(self, request: Request[A]) -> tuple[Gathered[A], None] | tuple[None, str | None]:
        """Return the answers of `ask_gateways`, or why they are missing; (None, None) where it raises
        NoGateways. Raises Unreachable when nothing of the cluster answers.
        """
        try:
            return self.ask_gateways(request), None
        except NoGateways:
            return None, None
        except Unreachable:
            raise
        except ControlError as error:
            return None, str(error)

    @property
    def history(self) -> History:
        """The samples of the console. Show only series of topics and groups that the person may see."""
        return self.console.sampler.history

    def figures(self, names: Sequence[str]) -> Data:
        """Return figures of the whole cluster over the range of the address, for a chart. They name no topic,
        group or client, and need no right.
        """
        keys = {name: Key(name) for name in names}
        return self.chart(self.history, keys, self.console.sampler.error)

    def chart(self, history: History, keys: Mapping[str, Key], error: str | None = None) -> Data:
        """Return series over the range of the address, for a chart that knows them by these names."""
        times, columns = history.columns(list(keys.values()), self.range_ms)
        return Data({"times": times, "series": dict(zip(keys, columns, strict=True)), "error": error})

    def gateway_figures(self) -> Summary:
        """Return the newest figures of each gateway; their number only without DESCRIBE on the cluster."""
        found = self.console.sampler.gateways
        if found.rows and self.user:
            with suppress(ControlError), self.partial() as cluster:
                if may_describe_cluster(cluster):
                    return found
            return found._replace(rows=(), note=None)
        return found

    @property
    def range_ms(self) -> int:
        """The time that charts show. Raises ControlError."""
        name = self.text("range", DEFAULT_RANGE)
        if name not in RANGES:
            raise ControlError(f"range must be one of {', '.join(RANGES)}, not {name[:40]!r}")
        return RANGES[name]

    @property
    def has_metrics(self) -> bool:
        return self.console.listener is not None

    @property
    def has_figures(self) -> bool:
        """Whether charts have what only gateways count: one tells its metrics, or did over the last day."""
        sampler = self.console.sampler
        return self.has_metrics or sampler.gateways.tells or Key(BYTES_IN) in sampler.history

    def listener(self) -> MetricsClient:
        """Return the metrics listener for this person. Raises ControlError without --metrics, and for a
        person who lacks the right to describe the cluster.
        """
        if self.console.listener is None:
            raise ControlError(
                "only the gateway's metrics listener knows this; set seqgate.metrics.listener of the "
                "gateway, and start the console with --metrics http://127.0.0.1:9644"
            )
        if self.user:
            with self.partial() as cluster:
                is_allowed = may_describe_cluster(cluster)
            if not is_allowed:
                raise ControlError(right_on_cluster(self.user, "describe").advice)
        return self.console.listener

    def missing_right(self, error: str) -> MissingRight | None:
        """Return the right that this request lacks; None for another error."""
        names = {kind: self.text(field) for kind, field in FIELDS.items()}
        return missing_right(error, self.user, self.operation, names)

    def place(self) -> tuple[str | None, int | None]:
        """Return the topic and the partition of the address, None for all. Raises ControlError."""
        topic, partition = self.text("topic") or None, self.optional_number("partition")
        if partition is not None and topic is None:
            raise ControlError(f"choose the topic of partition {partition}")
        return topic, partition

    def text(self, name: str, default: str = "") -> str:
        """Return a value of the path, or the last value of a field of the form or the query."""
        if name in self.path:
            return self.path[name]
        for values in (self.form, self.query):
            if values.get(name):
                return values[name][-1]
        return default

    def number(self, name: str, default: int, lowest: int = 0, highest: int = (1 << 63) - 1) -> int:
        """Return a field as an integer; `default` where it is missing or empty. Raises ControlError."""
        found = self.optional_number(name, lowest, highest)
        return default if found is None else found

    def optional_number(self, name: str, lowest: int = 0, highest: int = (1 << 63) - 1) -> int | None:
        """Return a field as an integer; None where it is missing or empty. Raises ControlError."""
        text = self.text(name).strip()
        if not text:
            return None
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) < _LONGEST_NUMBER):
            raise ControlError(f"{name} must be a number, not {text[:40]!r}")
        number = int(text)
        if not lowest <= number <= highest:
            raise ControlError(f"{name} must be between {lowest} and {highest}, not {number}")
        return number


# The numbers up to which an island has seen what each gateway counts, as it sends them back.

MOST_NUMBERS: Final = 100
"""Gateways whose numbers an island remembers; the one that answered longest ago is forgotten first."""


def numbers_of(visit: Visit, name: str) -> dict[int, int]:
    """Return a field such as 1:120,2:7 as numbers by node id. Raises ControlError."""
    try:
        pairs = [pair.split(":") for pair in visit.text(name).split(",") if pair]
        return {int(node_id): int(number) for node_id, number in pairs[-MOST_NUMBERS:]}
    except ValueError:
        raise ControlError(f"{name} must have numbers by node id, such as 1:120,2:7") from None


def numbers_text(numbers: Mapping[int, int]) -> str:
    return ",".join(f"{node_id}:{number}" for node_id, number in numbers.items())


def _gathered(replies: Replies[A]) -> Gathered[A]:
    silent = [row.silence for row in replies.rows if row.answer is None and not row.is_elsewhere]
    if replies.of > len(replies.rows):
        silent.append(
            f"{replies.of - len(replies.rows)} of {replies.of} gateways are not asked: the console asks "
            f"{MOST_GATEWAYS}"
        )
    return Gathered([row.answer for row in replies.rows if row.answer is not None], silent, replies.of)


Function = Callable[[Visit], PageAnswer]
"""A function of a page. It runs in a thread, may block, and may raise ControlError for the person."""


def above_form(form: Callable[[Visit, str], View], before: str = "") -> Callable[[Function], Function]:
    """Decorate a change: show why it is refused above its form, after the words `before`."""

    def decorate(change: Function) -> Function:
        def change_or_show(visit: Visit) -> PageAnswer:
            try:
                return change(visit)
            except ControlError as error:
                return form(visit, f"{before}{error}")

        return change_or_show

    return decorate


class PageGroup(Enum):
    """A group of pages in the navigation, in the order of the navigation."""

    NOW = ""
    DATA = "Data"
    CLIENTS = "Clients"
    ACCESS = "Access"
    GATEWAYS = "Gateways"
    MANUAL = "Help"


@dataclass(frozen=True, slots=True)
class Get:
    """An address that shows a page (GET), or "Waiting for `waits_for`" while its function takes long."""

    path: str
    function: Function
    waits_for: str = "the cluster's answer"


@dataclass(frozen=True, slots=True)
class Feed:
    """An address that gives an island its data as JSON, or a file to save (GET)."""

    path: str
    function: Function


@dataclass(frozen=True, slots=True)
class Post:
    """An address that changes something (POST). The form's token is checked before the function runs."""

    path: str
    function: Function


PageEndpoint = Get | Feed | Post


class Page:
    """The endpoints of a page. Its entry in the navigation leads to the first; `g` and `key` open it. A page
    without a section has no entry.
    """

    def __init__(
        self, title: str, section: PageGroup | None, key: str | None, *endpoints: PageEndpoint
    ) -> None:
        self.title = title
        self.section = section
        self.key = key
        self.path = endpoints[0].path
        self.endpoints = endpoints
