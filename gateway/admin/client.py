"""Asks the gateway that runs on a data directory, or reads the data directory if no gateway runs."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar, cast

import msgspec

from seqgate.gateway.admin.request import (
    MAX_ANSWER_BYTES,
    RUNNING,
    SOCKET_NAME,
    STOPPED,
    ControlAnswer,
    ControlError,
    Elsewhere,
    NoAnswer,
    NotRunning,
    PagedRequest,
    Request,
    own_wait_s,
    short_path,
)
from seqgate.gateway.cluster.cache.local_caches import CACHES, caches_in

if TYPE_CHECKING:
    from seqgate.gateway.admin.cluster.gateways import OtherAnswer
    from seqgate.gateway.config import Config

ANSWER_TIMEOUT_S: Final = 40.0
"""Longer than the gateway's own limit for an operation, because the gateway's error says more than a timeout.
"""
RESTART_S: Final = 5.0
"""How long a command waits for workers that are being started again; then it says that they don't run."""
_PAUSE_S: Final = 0.05
_SLOW_S: Final = 2.0
"""An answer that takes longer is reported on stderr, once."""
_PEER: Final = struct.Struct("iII")
"""The process that listens on a socket, its user and group: `struct ucred` of Linux."""
_PROBE_TIMEOUT_S: Final = 1.0
_CHUNK_BYTES: Final = 256 * 1024
_NOBODY_THERE: Final = (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR)

_shown: set[str] = set()

A = TypeVar("A")
B = TypeVar("B")
WORKERS: Final = "workers"
"""The directory in the data directory that has a directory for each of several workers: the one of
seqgate.log.sharing, which takes too long to import for a command. A test compares the two."""


def ask(
    data_dir: Path, request: Request[A], *, timeout_s: float = ANSWER_TIMEOUT_S, is_whole: bool = False
) -> A:
    """Return the answer of the gateway that runs on `data_dir`, of a list all pages in one.

    Of several workers the first one that gives an answer gives all of it, unless each knows a part.
    `is_whole`: the caller asks all others, too, so no note says what only they know. Raises NotRunning when
    no gateway runs there, NoAnswer when the gateway does not answer in time, and ControlError when it refuses
    or fails.
    """
    if request.asks_every_worker and request.is_of_each:
        each = ask_each(data_dir, request, timeout_s)
        return joined_pages(request, [*each.here, *each.others], each.missing)
    asked = places(data_dir)

    def ask_whole(place: Path) -> A:
        return joined(request, [_pages_of(place, request, timeout_s, is_whole=is_whole)])

    if len(asked) == 1:
        return ask_whole(asked[0])
    workers = AskedWorkers(asked, _is_there, min(timeout_s, RESTART_S))
    if not request.asks_every_worker:
        return workers.first(ask_whole, is_final=request.is_of_all)
    found, _ = _of_all(workers, lambda place: _pages_of(place, request, timeout_s, is_whole=True))
    return joined(request, found)


def _of_all(workers: AskedWorkers, ask_at: Callable[[Path], B]) -> tuple[list[B], list[str]]:
    """Return the answers of the workers; return, and write on stderr, which one gave none."""
    found, missing = workers.all(ask_at)
    for sentence in missing:
        _show_once(f"{sentence}; what only that worker knows is missing")
    return found, missing


class Each(NamedTuple, Generic[A]):
    """The answers of the gateways on a data directory, at least one, those of the other gateways of their
    cluster, and a sentence about each that gave none.
    """

    here: list[A]
    others: list[A]
    missing: list[str]


def ask_each(data_dir: Path, request: Request[A], timeout_s: float = ANSWER_TIMEOUT_S) -> Each[A]:
    """Return the answers of all gateways, to a request that each answers for itself. Raises like `ask`."""

    def ask_here(place: Path) -> A:
        return _ask_at(place, request, timeout_s)

    asked = places(data_dir)
    workers = AskedWorkers(asked, _is_there, min(timeout_s, RESTART_S))
    here, missing = ([ask_here(asked[0])], []) if len(asked) == 1 else workers.all(ask_here)
    from seqgate.gateway.admin.cluster.gateways import OthersRequest  # noqa: PLC0415 - for some commands

    line = msgspec.json.encode(request).decode()
    question = OthersRequest(line, [node_id for answer in here for node_id in nodes_of(answer)])
    try:
        told = workers.first(lambda place: _ask_at(place, question, timeout_s)).answers
    except ControlError as error:
        return Each(here, [], [*missing, f"other gateways could not be asked: {error}"])
    others, silent = answers_of(told, request)
    return Each(here, [*others.values()], missing + silent)


def answers_of(told: Iterable[OtherAnswer], request: Request[A]) -> tuple[dict[int, A], list[str]]:
    """Return the answers of other gateways by node id, and a sentence about each that gave none."""
    answers, missing = {}, []
    for other in told:
        try:
            answers[other.node_id] = answer_of(other.answer, request)
        except ControlError as error:
            missing.append(f"the gateway on node {other.node_id} gave no answer: {error}")
    return answers, missing


def nodes_of(answer: Any) -> list[int]:
    """Return the node ids of the gateways that an answer is of."""
    nodes: list[int] = getattr(answer, "nodes", None) or [answer.node_id]
    return nodes


def answer_of(answer: ControlAnswer, request: Request[A]) -> A:
    """Return the answer of another gateway. Raises ControlError where it is a refusal."""
    answer.check()
    try:
        result: A = msgspec.json.decode(answer.result, type=request.answer_type())
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ControlError(f"its answer has another form; is it another version? ({error})") from error
    return result


def joined_pages(request: Request[A], answers: Sequence[A], missing: Sequence[str]) -> A:
    """Return the answers of several gateways as one; write what is missing on stderr."""
    for sentence in missing:
        _show_once(f"{sentence}; what only it knows is missing")
    return joined(request, [[answer] for answer in answers])


def places(data_dir: Path) -> list[Path]:
    """Return the directories with the control sockets; several workers have one each."""
    workers = [path for path in data_dir.glob(f"{WORKERS}/*") if path.name.isdecimal()]
    return sorted(workers, key=lambda path: int(path.name)) or caches_in(data_dir) or [data_dir]


def _is_there(place: Path) -> bool:
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection,
        short_path(place / SOCKET_NAME) as path,
    ):
        connection.settimeout(_PROBE_TIMEOUT_S)
        try:
            connection.connect(path)
        except OSError as error:
            return error.errno not in _NOBODY_THERE
        return True


def _ask_at(place: Path, request: Request[A], timeout_s: float, *, is_whole: bool = False) -> A:
    """Return the answer of one gateway. `is_whole`: all others are asked, too, so no note is needed."""
    line = _exchange(place, msgspec.json.encode(request) + b"\n", timeout_s)
    try:
        answer = msgspec.json.decode(line, type=ControlAnswer)
        answer.check()
        if answer.note is not None and not is_whole:
            _show_once(answer.note)
        result: A = msgspec.json.decode(answer.result, type=request.answer_type())
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ControlError(
            f"the gateway on {place} answers in a form this command does not know; is it another version? "
            f"({error})"
        ) from error
    return result


def _show_once(note: str) -> None:
    """Write a note about an answer on stderr; the pages of one list share their note."""
    if note not in _shown:
        _shown.add(note)
        sys.stderr.write(f"seqgate: {note}\n")


def _pages_of(place: Path, request: Request[A], timeout_s: float, *, is_whole: bool = False) -> list[A]:
    pages = []
    following: Request[A] | None = request
    while following is not None:
        pages.append(_ask_at(place, following, timeout_s, is_whole=is_whole))
        following = following.next_page(pages[-1]) if isinstance(following, PagedRequest) else None
    return pages


def read_settings(config_file: Path | None, data_dir: Path | None, overrides: Sequence[str] = ()) -> Config:
    """Load the settings as the gateway does. Raises ControlError for a wrong one."""
    from seqgate.gateway.config import ConfigError, load_config  # noqa: PLC0415 - slow to import

    directory = () if data_dir is None else (f"log.dirs={data_dir}",)
    try:
        return load_config(config_file, os.environ, (*directory, *overrides))
    except ConfigError as error:
        raise ControlError(str(error)) from None


class Client(msgspec.Struct, frozen=True):
    """Asks the gateway on `data_dir`; `read_config` returns its settings. All methods raise ControlError.
    With `asks_gateway` False, the command names another store than a gateway's, and
    ask_running_or_data_directory reads that store. A gateway that gives no answer for `timeout_s` has none.
    `is_whole` is as in `ask`.
    """

    data_dir: Path
    read_config: Callable[[], Config]
    asks_gateway: bool = True
    timeout_s: float = ANSWER_TIMEOUT_S
    is_whole: bool = False

    def ask(self, request: Request[A]) -> A:
        """Return the answer of the running gateway."""
        timeout_s = self.timeout_s + own_wait_s(request)
        return ask(self.data_dir, request, timeout_s=timeout_s, is_whole=self.is_whole)

    def at_each_worker(self, do: Callable[[Client], B]) -> tuple[list[B], list[str]]:
        """Return what `do` returns for a client of each worker, one after the other; at least one. The
        sentences, which are written on stderr, too, say which worker gave nothing.
        """
        asked = places(self.data_dir)
        if len(asked) == 1:
            return [do(self)], []
        workers = AskedWorkers(asked, _is_there, min(self.timeout_s, RESTART_S))
        return _of_all(
            workers, lambda place: do(msgspec.structs.replace(self, data_dir=place, is_whole=True))
        )

    def ask_each(self, request: Request[A]) -> Each[A]:
        """Return the answers of all workers, and of all gateways of their cluster."""
        return ask_each(self.data_dir, request, self.timeout_s)

    def ask_running_or_data_directory(self, request: Request[A]) -> tuple[str, A]:
        """Return "running" with the gateway's answer, or "stopped" with what the data directory has."""
        if self.asks_gateway:
            with contextlib.suppress(NotRunning):
                return RUNNING, self.ask(request)
        return STOPPED, self._read(request)

    def _read(self, request: Request[A]) -> A:
        from seqgate.gateway.admin.operations import answer_stopped  # noqa: PLC0415 - slow to import

        now_ms = time.time_ns() // 1_000_000
        answer: A = answer_stopped(self.data_dir, self.read_config(), now_ms, request)
        return answer


def _exchange(data_dir: Path, line: bytes, timeout_s: float) -> bytes:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with connection:
        connection.settimeout(timeout_s)
        try:
            with short_path(data_dir / SOCKET_NAME) as path:
                connection.connect(path)
        except OSError as error:
            if error.errno in _NOBODY_THERE:
                raise NotRunning(_nobody_on(data_dir)) from error
            reason = error.strerror or str(error)
            raise NoAnswer(
                f"cannot reach the gateway on {data_dir.absolute()}: {reason[:1].lower()}{reason[1:]}"
            ) from error
        asked = f"the gateway on {data_dir}{_process_of(connection)}"
        slow = threading.Timer(_SLOW_S, _show_once, [f"{asked} has not answered yet; waiting"])
        slow.daemon = True
        slow.start()
        try:
            # A gateway that refuses at once may close the connection before it has read the request. Its
            # answer has arrived.
            with contextlib.suppress(BrokenPipeError):
                connection.sendall(line)
            return _read_line(connection)
        except TimeoutError as error:
            raise NoAnswer(f"{asked} did not answer within {timeout_s:g} s") from error
        except OSError as error:
            raise NoAnswer(f"{asked} hung up: {error.strerror or error}") from error
        finally:
            slow.cancel()


def _process_of(connection: socket.socket) -> str:
    """Return ` (pid N)` of the process that listens; nothing where the system does not tell it."""
    if not hasattr(socket, "SO_PEERCRED"):
        return ""
    pid = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[0]
    return f" (pid {pid})" if pid else ""


def _nobody_on(place: Path) -> str:
    """Return the sentence that nobody listens on a directory's control socket, which may be a worker's."""
    data_dir = place.parent.parent if place.parent.name in {WORKERS, CACHES} else place
    if data_dir.is_dir():
        return f"no gateway is running on {data_dir.absolute()}"
    what = "is a file" if data_dir.exists() else "does not exist"
    return f"no gateway is running on {data_dir.absolute()}, which {what}"


def _read_line(connection: socket.socket) -> bytes:
    received = bytearray()
    while not received.endswith(b"\n"):
        chunk = connection.recv(_CHUNK_BYTES)
        if not chunk:
            raise NoAnswer("the gateway hung up before it answered")
        received += chunk
        if len(received) > MAX_ANSWER_BYTES:
            raise ControlError(f"the gateway's answer is longer than {MAX_ANSWER_BYTES} bytes")
    return bytes(received)


# Asks several workers of one gateway: waits for one that is being started again, and says which gave no
# answer.


AskAt = Callable[[Path], B]


class AskedWorkers:
    """The workers of a gateway as a command asks them: all must answer in turn; all pauses are limited."""

    def __init__(
        self,
        places: Sequence[Path],
        is_there: Callable[[Path], bool],
        patience_s: float = RESTART_S,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Take the directories of the control sockets; `is_there` tells whether somebody listens at one."""
        self._places = places
        self._is_there = is_there
        self._now_s = now_s
        self._sleep = sleep
        self._until_s = now_s() + patience_s

    def first(self, ask_at: AskAt[B], *, is_final: bool = False) -> B:
        """Return the answer of the first worker that gives one. A worker may refuse what another one knows,
        unless `is_final`: then its refusal is that of all.

        Raises NoAnswer as soon as a worker takes the request and does not answer, because it may have done
        what it was asked. Without an answer, raises the refusal of the one that knows.
        """
        failed: dict[Path, ControlError] = {}
        for place in self._places:
            try:
                return self._patiently(place, ask_at)
            except NoAnswer as error:
                raise NoAnswer(f"{_name(place)} gave no answer: {error}") from error
            except ControlError as error:
                if is_final and not isinstance(error, NotRunning):
                    raise
                failed[place] = error
        raise self._error(failed)

    def all(self, ask_at: AskAt[B]) -> tuple[list[B], list[str]]:
        """Return the answers, at least one, and a note on each worker that owed one. Raises like `first`."""
        answers, failed = [], {}
        for place in self._places:
            try:
                answers.append(self._patiently(place, ask_at))
            except ControlError as error:
                failed[place] = error
        if not answers:
            raise self._error(failed)
        missing = [(place, error) for place, error in failed.items() if not isinstance(error, Elsewhere)]
        return answers, [f"{_name(place)} gave no answer: {_why(error)}" for place, error in missing]

    def _patiently(self, place: Path, ask_at: AskAt[B]) -> B:
        """Ask a worker. While others run and it does not, it is being started again."""
        while True:
            try:
                return ask_at(place)
            except NotRunning:
                others = (other for other in self._places if other != place)
                if self._now_s() >= self._until_s or not any(map(self._is_there, others)):
                    raise
                self._sleep(_PAUSE_S)

    @staticmethod
    def _error(failed: dict[Path, ControlError]) -> ControlError:
        """Return the error that says most: NotRunning if no worker runs, else a refusal and who is silent."""
        errors = list(failed.values())
        if all(isinstance(error, NotRunning) for error in errors):
            return errors[0]
        absent = {place: error for place, error in failed.items() if isinstance(error, NotRunning | NoAnswer)}
        refusals = [error for error in errors if not isinstance(error, NotRunning | NoAnswer | Elsewhere)]
        if absent:
            told = [f"{_name(place)} gave no answer: {_why(error)}" for place, error in absent.items()]
            return NoAnswer("; ".join([*map(str, refusals[:1]), *told]))
        return refusals[0] if refusals else errors[0]


def _name(place: Path) -> str:
    return f"worker {place.name}" if place.parent.name == CACHES else f"the worker on node {place.name}"


def _why(error: ControlError) -> str:
    return "it is not running now" if isinstance(error, NotRunning) else str(error)


# Joins the pages of an answer, and the answers of several workers, each of which knows a part.

_SUMMED: Final = ("counters", "waiting_requests", "waiting_bytes", "files_to_delete")
_UNITED: Final = ("offline_partitions", "nodes")
_COMMON: Final = ("partitions_elsewhere",)


def joined(request: Request[A], found: Sequence[list[A]]) -> A:
    """Return the pages that each worker gave as one answer, with the counts of all workers: those of the last
    pages, because a gateway loads what it lists page by page.
    """
    pages: list[Any] = [page for of_worker in found for page in of_worker]
    if len(pages) == 1 or not request.rows:
        return cast("A", pages[0])
    last: list[Any] = [of_worker[-1] for of_worker in found]
    fields = set(pages[0].__struct_fields__)
    facts: dict[str, Any] = {
        name: summed([getattr(page, name) for page in last]) for name in fields.intersection(_SUMMED)
    }
    for name in fields.intersection(_UNITED):
        facts[name] = sorted({value for page in last for value in getattr(page, name)})
    for name in fields.intersection(_COMMON):
        facts[name] = sorted(
            set(getattr(last[0], name)).intersection(*(getattr(page, name) for page in last))
        )
    for name in request.rows.split():
        facts[name] = [row for page in pages for row in getattr(page, name)]
    return cast("A", msgspec.structs.replace(pages[0], **facts, **dict.fromkeys(fields & {"complete"}, True)))


def summed(values: Sequence[Any]) -> Any:
    """Return the sum of numbers, or of records, field by field; None if one is missing. True counts for all,
    and of other values the first.
    """
    if any(value is None for value in values):
        return None
    if isinstance(values[0], bool):
        return any(values)
    if isinstance(values[0], int | float):
        return sum(values)
    if not isinstance(values[0], msgspec.Struct):
        return values[0]
    names = [field.name for field in msgspec.structs.fields(values[0])]
    return msgspec.structs.replace(
        values[0], **{name: summed([getattr(value, name) for value in values]) for name in names}
    )
