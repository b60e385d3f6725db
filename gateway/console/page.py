"""A page of the console: its name in the navigation, and its addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

from seqgate.gateway.admin.remote.client_security import ClientSecurity
from seqgate.gateway.admin.remote.cluster import Cluster
from seqgate.gateway.admin.request import ControlError, Request
from seqgate.gateway.console.asking.connections import may_describe_cluster
from seqgate.gateway.console.console import Console
from seqgate.gateway.console.metrics.rates import History

# The answers that the functions of a page return. `web` turns an answer into HTTP.


@dataclass(frozen=True, slots=True)
class View:
    """A template with its values."""

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True)
class Data:
    """A value that is sent as JSON to an island."""

    value: Any


@dataclass(frozen=True, slots=True)
class Redirect:
    """Another page to go to after a change. The page shows `notice`, a sentence, once."""

    path: str
    notice: str | None = None


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A question before a change.

    The page shows `title`, `sentences` and the rows of `changes` (what, before, after). The answer comes as
    the same request with `visit.is_confirmed`. `typed`: a text that the person must type first. `is_danger`:
    the change can't be undone.
    """

    title: str
    action: str
    back: str
    sentences: Sequence[str] = ()
    changes: Sequence[tuple[str, str, str]] = ()
    typed: str | None = None
    is_danger: bool = False


@dataclass(frozen=True, slots=True)
class Download:
    """A file for the browser to save."""

    chunks: Iterator[bytes]
    file_name: str
    content_type: str = "application/octet-stream"


INSTEAD: Final = "delete"
"""The word that stands for a name that can't be typed, such as one with a line break."""


def typed_for(name: str) -> str:
    """Return the name itself, or a word where a keyboard can't type the name."""
    return name if name.isprintable() and name == name.strip() and name else INSTEAD


Answer = View | Data | Redirect | Confirmation | Download


# Pages of a long list, and its order. Pure.

ROWS: Final = 50
"""Rows of a page."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Paging:
    """The place of a page in a list; `first` and `last` count rows from 1, both 0 for an empty list."""

    number: int
    pages: int
    first: int
    last: int
    total: int


def page_of(rows: Sequence[R], number: int, size: int = ROWS) -> tuple[Sequence[R], Paging]:
    """Return the rows of a page, counted from 1; a number past the end gives the last page."""
    pages = max(1, -(-len(rows) // size))
    number = min(max(number, 1), pages)
    start = (number - 1) * size
    shown = rows[start : start + size]
    return shown, Paging(number, pages, start + 1 if shown else 0, start + len(shown), len(rows))


def ordered(rows: Sequence[R], sort: str, keys: Mapping[str, Callable[[R], Any]], default: str) -> list[R]:
    """Return the rows by one of `keys`; a minus before its name reverses. Unknown names mean `default`."""
    name = sort.removeprefix("-")
    if name not in keys:
        name, sort = default, default
    key = keys[name]
    return sorted(rows, key=lambda row: _comparable(key(row)), reverse=sort.startswith("-"))


def _comparable(value: Any) -> tuple[bool, Any]:
    """Return a key that puts unknown values before all others."""
    return (value is not None, value if value is not None else 0)


# A visit: one request of one person to a page.

CONFIRMED: Final = "confirmed"
"""The field of a form with which the person confirms a change."""
_LONGEST_NUMBER: Final = 20

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that came with a form."""

    file_name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Visit:
    """A request with all that a page may use.

    `security` is how this person connects to the cluster, `user` the login name, empty without logins. `path`
    are the values in the address, `query` those after the question mark, `form` those of a form that was
    sent; each name maps to its values.
    """

    console: Console
    security: ClientSecurity
    session_id: str
    address: str
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)
    form: Mapping[str, Sequence[str]] = field(default_factory=dict)
    uploads: Mapping[str, Upload] = field(default_factory=dict)

    @property
    def user(self) -> str:
        """The name with which the person logged in; empty without logins."""
        return self.security.username

    @property
    def is_confirmed(self) -> bool:
        """Whether the person has confirmed the change."""
        return self.text(CONFIRMED) == "yes"

    @contextmanager
    def cluster(self) -> Iterator[Cluster]:
        """Yield the cluster, connected as the person. Raises ControlError, also in place of errors of
        kafka-python.
        """
        with self.console.connections.lend(self.security) as cluster:
            yield cluster

    def ask_gateway(self, request: Request[A]) -> A:
        """Return the answer of the metrics listener to a request of the control socket that only reads.

        Raises ControlError without --metrics, and for a person who lacks the right to describe the cluster.
        """
        self.check_metrics()
        assert self.console.listener is not None
        return self.console.listener.view(request)

    def ask_gateway_by_name(self, operation: str, **fields: Any) -> Any:
        """Return the answer as `ask_gateway` does, as plain dictionaries and lists, for an operation without
        messages here.
        """
        self.check_metrics()
        assert self.console.listener is not None
        return self.console.listener.view_named(operation, **fields)

    def readiness(self) -> tuple[bool, str]:
        """Return whether the gateway says that it is ready, and its words. Raises ControlError as
        `ask_gateway` does.
        """
        self.check_metrics()
        assert self.console.listener is not None
        return self.console.listener.readiness()

    def metrics_text(self) -> str:
        """Return all metrics of the gateway as Prometheus' text. Raises ControlError as `ask_gateway` does."""
        self.check_metrics()
        assert self.console.listener is not None
        return self.console.listener.metrics()

    def figures(self, names: Sequence[str]) -> Data:
        """Return what the sampler has read since the time `after` of the address, for a chart."""
        sampler = self.console.sampler
        return self.since(sampler.history, names, sampler.error)

    def since(self, history: History, names: Sequence[str], error: str | None = None) -> Data:
        """Return what a history has of these names since the time `after` of the address, for a chart."""
        times, series = history.since(self.number("after", 0), names)
        return Data({"times": times, "series": series, "error": error})

    @property
    def has_metrics(self) -> bool:
        """Whether the console has the gateway's metrics listener."""
        return self.console.listener is not None

    def check_metrics(self) -> None:
        """Raise ControlError without --metrics, and for a person who lacks the right to describe the cluster."""
        if self.console.listener is None:
            raise ControlError(
                "only the gateway's metrics listener knows this; set seqgate.metrics.listener of the "
                "gateway, and start the console with --metrics http://127.0.0.1:9644"
            )
        if self.user and not self._may_describe_cluster():
            raise ControlError(
                f"user {self.user} lacks the right to describe the cluster (DESCRIBE on CLUSTER); seqgate "
                "acls add gives rights"
            )

    def _may_describe_cluster(self) -> bool:
        with self.cluster() as cluster:
            return may_describe_cluster(cluster)

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
        text = self.text(name).strip()
        return default if not text else _number(name, text, lowest, highest)

    def optional_number(self, name: str, lowest: int = 0, highest: int = (1 << 63) - 1) -> int | None:
        """Return a field as an integer; None where it is missing or empty. Raises ControlError."""
        text = self.text(name).strip()
        return None if not text else _number(name, text, lowest, highest)


def _number(name: str, text: str, lowest: int, highest: int) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) < _LONGEST_NUMBER):
        raise ControlError(f"{name} must be a number, not {text[:40]!r}")
    number = int(text)
    if not lowest <= number <= highest:
        raise ControlError(f"{name} must be between {lowest} and {highest}, not {number}")
    return number


Function = Callable[[Visit], Answer]
"""A function of a page. It runs in a thread, may block, and may raise ControlError with a sentence for the
person.
"""


class PageGroup(Enum):
    """A group of pages in the navigation, in the order of the navigation."""

    NOW = ""
    DATA = "Data"
    CLIENTS = "Clients"
    ACCESS = "Access"
    GATEWAYS = "Gateways"


@dataclass(frozen=True, slots=True)
class Get:
    """An address that shows a page (GET).

    `waits_for` is a noun phrase. When the function takes long, the browser shows "Waiting for …" and asks
    again.
    """

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


Endpoint = Get | Feed | Post


@dataclass(frozen=True, slots=True)
class Page:
    """A page. `path` is where its entry in the navigation leads; `key` is the letter after `g` that opens the
    page.
    """

    title: str
    path: str
    section: PageGroup
    endpoints: tuple[Endpoint, ...]
    key: str | None = None


# The addresses of pages.


def address(path: str, **query: str | int | Sequence[str] | None) -> str:
    """Return an address of the console with a query; None, empty texts and empty lists are left out, and a
    list gives its name several times.
    """
    given = {name: value for name, value in query.items() if value or value == 0}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def topic_path(topic: str) -> str:
    """Return the address of a topic's page."""
    return f"/topics/{quote(topic, safe='')}"


def topic_settings_path(topic: str) -> str:
    """Return the address of a topic's settings."""
    return f"{topic_path(topic)}/settings"


def records_path(topic: str) -> str:
    """Return the address of a topic's records."""
    return f"/records/{quote(topic, safe='')}"
