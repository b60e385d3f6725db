"""The messages on the control socket: a request, its answer, and the error that can replace the answer.

The base classes of requests are here; the module of each subject has its requests, beside its commands. This
module imports nothing of the gateway, so that a command starts fast.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import heapq
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, Literal, Protocol, Self, TypeAlias, TypeVar, get_args

import msgspec

MAX_REQUEST_BYTES: Final = 64 * 1024
MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
PAGE_ROWS: Final = 1_000
"""Rows of a page if the request gives no limit."""
MAX_PAGE_ROWS: Final = 10_000
"""The highest limit of a page; the gateway refuses a request with a higher one."""
POSITION: Final = "position"
"""The key of a list whose rows are numbered."""

RUNNING: Final = "running"
"""The word for a running gateway as the source of an answer."""
STOPPED: Final = "stopped"
"""The word for a data directory without a running gateway as the source of an answer."""

A = TypeVar("A")
G = TypeVar("G")
Q = TypeVar("Q", bound="Request[Any]")
S = TypeVar("S")
T = TypeVar("T")
K = TypeVar("K", bound=Any)


class ControlError(Exception):
    """The gateway refused an operation, or it failed; the message is one sentence for the operator."""


class Unreachable(ControlError):
    """Nothing answers at the address of a cluster or a broker, or nothing answers in time."""


_SIMILAR: Final = 0.6
"""The likeness of two names, from 0 to 1, below which the nearest name is no help."""


def nearest_hint(name: str, names: Iterable[str]) -> str:
    """Return `; the nearest name is …` for the entry of `names` most similar to `name`, or nothing."""
    import difflib  # noqa: PLC0415 - only for a wrong name

    matches = difflib.get_close_matches(name, list(names), n=1, cutoff=_SIMILAR)
    return f"; the nearest name is {matches[0]}" if matches else ""


class NotRunning(ControlError):
    """No gateway answers on the control socket of this data directory."""


class NoAnswer(ControlError):
    """The gateway gave no answer to what it was asked, and may have done it."""


class Elsewhere(ControlError):
    """The gateway refused because another gateway knows the answer, or must carry the operation out."""


class Request(msgspec.Struct, Generic[A], tag_field="operation", forbid_unknown_fields=True):
    """A request whose answer has the type A. Its tag is the name of the operation. `asks_every_worker`: each
    of several workers knows a part of the answer. `is_of_all`: one worker answers for all, and refuses for
    all. `is_of_each`: every gateway of a cluster answers for itself, also over the Kafka protocol.
    `network_right`: a gateway answers over the Kafka protocol, too, who has this right on the cluster; empty:
    on the control socket only. `is_partial`: in a cluster the answer lacks what other gateways lead or
    coordinate, and a note says so. `rows` names the fields of the answer of which each page, and each
    gateway, has a part, that of the list itself first.
    """

    asks_every_worker: ClassVar[bool] = False
    is_of_all: ClassVar[bool] = False
    is_of_each: ClassVar[bool] = False
    network_right: ClassVar[Literal["", "DESCRIBE", "ALTER"]] = ""
    is_partial: ClassVar[bool] = False
    rows: ClassVar[str] = ""

    @classmethod
    def operation_name(cls) -> str:
        """Return the name of the operation."""
        return str(cls.__struct_config__.tag)

    @classmethod
    def answer_type(cls) -> Any:
        """Return the type of the answer."""
        return get_args(vars(cls)["__orig_bases__"][0])[0]


def own_wait_s(request: Request[Any]) -> float:
    """Return how long a request asks the gateway to wait before it answers with what it has reached."""
    timeout_ms: int = getattr(request, "timeout_ms", 0)
    return timeout_ms / 1000


ClusterAnswers: TypeAlias = "Mapping[type[Request[Any]], Callable[[Any, Any], Any]]"
"""The functions by which any cluster answers the requests of a module over the Kafka protocol. A module of
commands has them as OPERATIONS.
"""


class PagedRequest(Request[A], kw_only=True):
    """A request for at most `limit` rows of a list.

    `key` names the fields of a row that the request for the next page has as `after`; POSITION: the list is
    numbered, and the next page begins at `position`. Without a key there is one page.
    """

    key: ClassVar[str] = ""
    limit: int = PAGE_ROWS

    def next_page(self, answer: A) -> Self | None:
        """Return the request for the page after `answer`; None: no page follows."""
        page: Any = answer
        found = getattr(page, self.rows.partition(" ")[0])
        if self.key == POSITION:
            position = getattr(self, POSITION) + len(found)
            return (
                msgspec.structs.replace(self, position=position) if found and position < page.total else None
            )
        if not self.key or page.complete:
            return None
        return msgspec.structs.replace(self, after=attrgetter(*self.key.split())(found[-1]))


def page(found: Iterable[T], after: K | None, limit: int, key: Callable[[T], K]) -> tuple[list[T], bool]:
    """Return the first `limit` items whose key is above `after`, by key, and whether these are the last."""
    wanted = found if after is None else (item for item in found if key(item) > after)
    first = heapq.nsmallest(limit + 1, wanted, key=key)
    return first[:limit], len(first) <= limit


class Numbered(Protocol):
    """A row that a process numbers, beginning with 1."""

    @property
    def number(self) -> int: ...


N = TypeVar("N", bound=Numbered)


def newest_first(rows: Sequence[N], after: int) -> Iterator[N]:
    """Yield the rows with a number above `after`, the newest first; all if the process has begun to count
    again.
    """
    lowest = after if rows and rows[-1].number >= after else 0
    return (row for row in reversed(rows) if row.number > lowest)


def from_source(
    source: Callable[[G], S], answer: Callable[[S, Q], Awaitable[A] | A]
) -> Callable[[G, Q], Awaitable[A] | A]:
    """Return a function that answers from what `source` makes of a gateway or cluster."""

    @functools.wraps(answer)
    def run(made_of: G, request: Q) -> Awaitable[A] | A:
        return answer(source(made_of), request)

    return run


class ControlAnswer(msgspec.Struct, omit_defaults=True):
    """The answer of the gateway: the result, or a sentence that says why there is none.

    `note` says what the result lacks because other gateways of the cluster know it. `is_elsewhere`: the error
    is that one of them knows.
    """

    result: msgspec.Raw = msgspec.Raw(b"null")
    error: str | None = None
    note: str | None = None
    is_elsewhere: bool = False

    @classmethod
    def of_error(cls, error: ControlError) -> Self:
        """Return the answer that refuses with an error."""
        return cls(error=str(error), is_elsewhere=isinstance(error, Elsewhere))

    def check(self) -> None:
        """Raise the error of a refusal: ControlError, or Elsewhere."""
        if self.error is not None:
            raise Elsewhere(self.error) if self.is_elsewhere else ControlError(self.error)


# The address of the control socket. The kernel takes some 100 bytes of path (`sun_path`). A socket with a
# longer path is reached through a descriptor of its directory: `/proc/self/fd/N/control.sock`.


SOCKET_NAME: Final = "control.sock"
"""The name of the control socket in the data directory."""
CONSOLE_HISTORY: Final = "console-history"
"""The name of the file in the data directory in which the console of `seqgate serve` keeps its history."""
CONSOLE_SOCKET: Final = "_SEQGATE_CONSOLE_SOCKET"
"""The environment variable that has the descriptor of the socket on which that console listens."""
LONGEST_PATH_BYTES: Final = 100
"""A path of more bytes goes through a descriptor of its directory."""
_DESCRIPTORS: Final = "/proc/self/fd"


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Yield a path to the same socket that is short enough for the kernel; it is valid while the context
    lasts. Raises OSError: the directory can't be opened, or the system has no /proc and the path is too long.
    """
    if len(os.fsencode(path)) <= LONGEST_PATH_BYTES:
        yield str(path)
        return
    if not Path(_DESCRIPTORS).is_dir():
        raise OSError(errno.ENAMETOOLONG, "the path of the control socket is too long", str(path))
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"{_DESCRIPTORS}/{directory}/{path.name}"
    finally:
        os.close(directory)


def in_words(error: Exception) -> str:
    """Return the text of an error with the file it is about, without the system's error number."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
