"""Asks a running gateway on its control socket."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from gateway.control.address import SOCKET_NAME, short_path
from gateway.control.backlog_results import BacklogPage
from gateway.control.errors import ControlError, NotRunning
from gateway.control.messages import (
    MAX_ANSWER_BYTES,
    Answer,
    BacklogRequest,
    DescribeGroupRequest,
    DescribeTransactionRequest,
    FindHangingRequest,
    ListGroupsRequest,
    ListProducersRequest,
    ListTransactionsRequest,
    NamesRequest,
    Request,
    SweepResultRequest,
)
from gateway.control.name_results import NamePage
from gateway.control.results import GroupDescription, GroupPage, ProducerPage
from gateway.control.sweep_results import SweepPage
from gateway.control.transaction_results import HangingPage, TransactionDescription, TransactionPage

ANSWER_TIMEOUT_S: Final = 40.0
"""Longer than the gateway's own bound on an operation, whose sentence says more."""
_CHUNK_BYTES: Final = 256 * 1024
_NOBODY_THERE: Final = (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR)

T = TypeVar("T")


def ask(data_dir: Path, request: Request, result_type: type[T], *, timeout_s: float = ANSWER_TIMEOUT_S) -> T:
    """The answer of the gateway that runs on `data_dir`.

    Raises NotRunning when there is none, and ControlError when it refuses, fails, or does not answer in time.
    """
    line = _exchange(data_dir, msgspec.json.encode(request) + b"\n", timeout_s)
    try:
        answer = msgspec.json.decode(line, type=Answer)
        if answer.error is not None:
            raise ControlError(answer.error)
        return msgspec.json.decode(answer.result, type=result_type)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ControlError(
            f"the gateway on {data_dir} answers in a form this command does not know; is it another version? ({error})"
        ) from error


def producer_pages(data_dir: Path, topic: str | None, partition: int | None) -> Iterator[ProducerPage]:
    """All producers, page after page. Raises what `ask` raises."""
    request = ListProducersRequest(topic, partition)
    while True:
        page = ask(data_dir, request, ProducerPage)
        yield page
        if page.complete:
            return
        last = page.producers[-1]
        request = ListProducersRequest(topic, partition, (last.topic, last.partition, last.producer_id))


def group_pages(data_dir: Path, states: list[str]) -> Iterator[GroupPage]:
    """All consumer groups of the states, page after page. Raises what `ask` raises."""
    request = ListGroupsRequest(states)
    while True:
        page = ask(data_dir, request, GroupPage)
        yield page
        if page.complete:
            return
        request = ListGroupsRequest(states, page.groups[-1].group)


def describe_group(data_dir: Path, group: str) -> GroupDescription:
    """A consumer group with all its partitions. Raises what `ask` raises."""
    page = first = ask(data_dir, DescribeGroupRequest(group), GroupDescription)
    partitions = list(first.partitions)
    while not page.complete:
        after = partitions[-1].topic, partitions[-1].partition
        page = ask(data_dir, DescribeGroupRequest(group, after), GroupDescription)
        partitions += page.partitions
    return msgspec.structs.replace(first, partitions=partitions, complete=True)


def backlog_pages(data_dir: Path, topic: str) -> Iterator[BacklogPage]:
    """The backlogs of all partitions of a topic, page after page. Raises what `ask` raises."""
    request = BacklogRequest(topic)
    while True:
        page = ask(data_dir, request, BacklogPage)
        yield page
        if page.complete:
            return
        request = BacklogRequest(topic, page.partitions[-1].partition)


def name_pages(data_dir: Path, request: NamesRequest) -> Iterator[NamePage]:
    """All producer names that `request` asks for, page after page. Raises what `ask` raises."""
    while True:
        page = ask(data_dir, request, NamePage)
        yield page
        if page.next is None:
            return
        request = msgspec.structs.replace(request, begin=page.next)


def transaction_pages(data_dir: Path, request: ListTransactionsRequest) -> Iterator[TransactionPage]:
    """The transactional ids that `request` asks for, page after page. Raises what `ask` raises."""
    while True:
        page = ask(data_dir, request, TransactionPage)
        yield page
        if page.complete:
            return
        request = msgspec.structs.replace(request, after=page.transactions[-1].transactional_id)


def describe_transaction(data_dir: Path, transactional_id: str) -> TransactionDescription:
    """A transactional id with all its partitions. Raises what `ask` raises."""
    page = first = ask(data_dir, DescribeTransactionRequest(transactional_id), TransactionDescription)
    partitions = list(first.partitions)
    while not page.complete:
        after = partitions[-1].topic, partitions[-1].partition
        page = ask(data_dir, DescribeTransactionRequest(transactional_id, after), TransactionDescription)
        partitions += page.partitions
    return msgspec.structs.replace(first, partitions=partitions, complete=True)


def hanging_pages(data_dir: Path, topic: str | None, partition: int | None) -> Iterator[HangingPage]:
    """All hanging transactions, page after page. Raises what `ask` raises."""
    request = FindHangingRequest(topic, partition)
    while True:
        page = ask(data_dir, request, HangingPage)
        yield page
        if page.complete:
            return
        last = page.hanging[-1]
        request = FindHangingRequest(topic, partition, (last.topic, last.partition, last.producer_id))


def sweep_result(data_dir: Path, number: int) -> SweepPage:
    """What a sweep has found so far, whole. Raises what `ask` raises."""
    page = first = ask(data_dir, SweepResultRequest(number), SweepPage)
    leaks = list(first.leaks)
    while page.leaks and len(leaks) < page.total:
        page = ask(data_dir, SweepResultRequest(number, position=len(leaks)), SweepPage)
        leaks += page.leaks
    return msgspec.structs.replace(first, leaks=leaks)


def _exchange(data_dir: Path, line: bytes, timeout_s: float) -> bytes:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with connection:
        connection.settimeout(timeout_s)
        try:
            with short_path(data_dir / SOCKET_NAME) as path:
                connection.connect(path)
        except OSError as error:
            if error.errno in _NOBODY_THERE:
                raise NotRunning(f"no gateway runs on {data_dir}") from error
            raise ControlError(
                f"the gateway on {data_dir} can't be asked: {error.strerror or error}"
            ) from error
        try:
            # A gateway that refuses at once may close before it has read the request; its answer is there all the same.
            with contextlib.suppress(BrokenPipeError):
                connection.sendall(line)
            return _read_line(connection)
        except TimeoutError as error:
            raise ControlError(f"the gateway on {data_dir} did not answer within {timeout_s:g} s") from error
        except OSError as error:
            raise ControlError(f"the gateway on {data_dir} hung up: {error.strerror or error}") from error


def _read_line(connection: socket.socket) -> bytes:
    received = bytearray()
    while not received.endswith(b"\n"):
        chunk = connection.recv(_CHUNK_BYTES)
        if not chunk:
            raise ControlError("the gateway hung up before it answered")
        received += chunk
        if len(received) > MAX_ANSWER_BYTES:
            raise ControlError(f"the gateway's answer is longer than {MAX_ANSWER_BYTES} bytes")
    return bytes(received)
