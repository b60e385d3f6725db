"""A worker's metadata over a stream whose other end the test holds."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from seqgate.gateway.metadata.decision import Decision
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.records import MetadataRecord, TopicRecord, encode_record
from seqgate.gateway.runtime.topics.metadata_log import MetadataLog
from seqgate.gateway.workers.link import (
    GONE,
    Alive,
    Commit,
    CommitRefused,
    CommittedChange,
    Frames,
    FromSupervisor,
    FromWorker,
    Ping,
    SupervisorLink,
    WorkerJournal,
    encode,
    from_worker,
)
from seqgate.log import StorageFailed


class Supervisor:
    """The other end of a worker's stream."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._frames = Frames(from_worker)
        self._messages: list[FromWorker] = []

    async def next(self) -> FromWorker:
        while not self._messages:
            data = await asyncio.get_running_loop().sock_recv(self.connection, 1 << 16)
            assert data
            self._messages += self._frames.feed(data)
        return self._messages.pop(0)

    async def send(self, *messages: FromSupervisor) -> None:
        await asyncio.get_running_loop().sock_sendall(self.connection, b"".join(map(encode, messages)))


@asynccontextmanager
async def connected(
    when_changed: Callable[[], None] = lambda: None,
) -> AsyncIterator[tuple[Supervisor, SupervisorLink, MetadataLog]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        link = await SupervisorLink.open(theirs, when_changed)
        yield Supervisor(ours), link, MetadataLog(WorkerJournal(link, MetadataImage(), 5))
        link.close()


def topic(number: int) -> TopicRecord:
    return TopicRecord(f"t{number}", uuid.UUID(int=number))


def encoded(*records: MetadataRecord) -> list[bytes]:
    return [encode_record(record) for record in records]


def creation(image: MetadataImage) -> Decision[int]:
    number = len(image.topics_by_name) + 1
    return Decision([topic(number)], number)


async def test_a_change_is_folded_in_when_the_supervisor_says_it_is_durable() -> None:
    async with connected() as (supervisor, _, metadata_log):
        told: list[Sequence[MetadataRecord]] = []

        async def listen(records: Sequence[MetadataRecord]) -> None:
            told.append(records)

        metadata_log.add_listener(listen)
        change = asyncio.create_task(metadata_log.commit(creation))
        asked = await supervisor.next()
        assert isinstance(asked, Commit)
        assert (asked.end_offset, asked.records) == (5, encoded(topic(1)))
        assert not metadata_log.image.topics_by_name
        await supervisor.send(CommittedChange(6, asked.records, asked.number))
        assert await change == 1
        assert told == [[topic(1)]]
        assert metadata_log.last_offset == 5


async def test_the_loser_decides_again_on_what_the_winner_has_done() -> None:
    async with connected() as (supervisor, _, metadata_log):
        change = asyncio.create_task(metadata_log.commit(creation))
        asked = await supervisor.next()
        assert isinstance(asked, Commit)
        await supervisor.send(CommittedChange(6, encoded(topic(1))), CommitRefused(asked.number))
        again = await supervisor.next()
        assert isinstance(again, Commit)
        assert (again.end_offset, again.records) == (6, encoded(topic(2)))
        await supervisor.send(CommittedChange(7, again.records, again.number))
        assert await change == 2


async def test_a_change_that_could_not_be_written_fails() -> None:
    async with connected() as (supervisor, _, metadata_log):
        change = asyncio.create_task(metadata_log.commit(creation))
        asked = await supervisor.next()
        assert isinstance(asked, Commit)
        await supervisor.send(CommitRefused(asked.number, "the disk is full"))
        with pytest.raises(StorageFailed, match="the disk is full"):
            await change
        assert not metadata_log.image.topics_by_name


async def test_changes_of_others_are_announced() -> None:
    came = asyncio.Event()
    async with connected(came.set) as (supervisor, _, metadata_log):
        await supervisor.send(
            CommittedChange(6, encoded(topic(1))), CommittedChange(8, encoded(topic(2), topic(3)))
        )
        await came.wait()
        while len(metadata_log.image.topics_by_name) < 3:
            await metadata_log.catch_up()
        assert metadata_log.last_offset == 7


async def test_a_ping_is_answered() -> None:
    async with connected() as (supervisor, _, _log):
        await supervisor.send(Ping())
        assert await supervisor.next() == Alive()


async def test_without_a_supervisor_nothing_changes() -> None:
    async with connected() as (supervisor, link, metadata_log):
        change = asyncio.create_task(metadata_log.commit(creation))
        await supervisor.next()
        supervisor.connection.close()
        assert (await link.lost()).startswith(GONE)
        with pytest.raises(StorageFailed, match=GONE):
            await change
        with pytest.raises(StorageFailed, match=GONE):
            await metadata_log.commit(creation)


async def test_nonsense_ends_the_link() -> None:
    async with connected() as (supervisor, link, _):
        await asyncio.get_running_loop().sock_sendall(supervisor.connection, b"\xff" * 8)
        assert (await link.lost()).startswith(GONE)
