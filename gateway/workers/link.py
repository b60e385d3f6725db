"""A worker's end of the stream to the process that supervises it."""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Generic, Literal, TypeVar, cast

import msgspec

from seqgate.gateway.metadata.image import MetadataImage, TopicImage
from seqgate.gateway.metadata.records import MetadataRecord, RemoveTopicRecord, decode_record, encode_record
from seqgate.gateway.runtime.topics.metadata_log import FoldedImage
from seqgate.gateway.runtime.upkeep.backup_staging import StagingRefused
from seqgate.gateway.tasks import settle
from seqgate.log import StorageFailed

logger = logging.getLogger(__name__)

GONE: Final = "the process that supervises this worker is gone"


class SupervisorLink(asyncio.Protocol):
    """Sends commits, keeps the changes that came until the journal takes them, and answers pings."""

    def __init__(
        self,
        connection: socket.socket,
        when_changed: Callable[[], None],
        when_staging: Callable[[RoundStep | RoundEnded], None],
    ) -> None:
        """Take a connected socket, which a transport uses, too. `when_changed` is called after further
        `changes` have come, `when_staging` with what is about a backup.
        """
        self.changes: deque[CommittedChange] = deque()
        """The changes that are not folded in yet, in the order of the log."""
        self._connection = connection
        self._when_changed = when_changed
        self._when_staging = when_staging
        self._frames = Frames(from_supervisor)
        self._transport: asyncio.WriteTransport | None = None
        self._sent = asyncio.Event()
        """Set while the transport keeps no bytes."""
        self._sent.set()
        self._verdicts: dict[int, asyncio.Future[CommitRefused | None]] = {}
        self._numbers = 0
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(
        cls,
        connection: socket.socket,
        when_changed: Callable[[], None] = lambda: None,
        when_staging: Callable[[RoundStep | RoundEnded], None] = lambda _: None,
    ) -> SupervisorLink:
        """Return the link over a connected socket, which stays open for the end of the process."""
        connection.setblocking(False)
        link = cls(connection, when_changed, when_staging)
        await asyncio.get_running_loop().create_unix_connection(lambda: link, sock=connection.dup())
        return link

    async def lost(self) -> str:
        """Wait until the supervisor is gone; return a sentence that says so."""
        return await asyncio.shield(self._lost)

    def send(self, message: FromWorker) -> None:
        """Send a message; a supervisor that is gone gets none."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode(message))

    async def sent(self) -> None:
        """Wait until the stream has taken all messages."""
        while not self._sent.is_set():
            await self._sent.wait()

    def exchange(self, message: FromWorker, limit_s: float) -> None:
        """Send a message, and wait for the next RoundStep, for `limit_s` at most. Nothing else runs in this
        thread meanwhile. Call this right after `sent`.
        """
        until_s = time.monotonic() + limit_s
        arrived: list[FromSupervisor] = []
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        try:
            self._connection.sendall(encode(message))
            while not any(isinstance(found, RoundStep) for found in arrived):
                left_s = until_s - time.monotonic()
                if left_s <= 0 or not poll.poll(left_s * 1000):
                    break
                data = self._connection.recv(READ_BYTES)
                if not data:
                    break
                arrived += self._frames.feed(data)
        except (OSError, BadFrame) as error:
            # The transport finds the end of the stream, too.
            logger.warning("the supervisor can't be heard: %s", error)
        self._take(arrived)

    async def commit(self, end_offset: int, records: list[bytes]) -> CommitRefused | None:
        """Ask for a change of the log at `end_offset`; return None once it is in `changes`, or why not."""
        if self._lost.done():
            return CommitRefused(0, GONE)
        self._numbers += 1
        verdict: asyncio.Future[CommitRefused | None] = asyncio.get_running_loop().create_future()
        self._verdicts[self._numbers] = verdict
        self.send(Commit(self._numbers, end_offset, records))
        return await verdict

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)
        self._transport.set_write_buffer_limits(0)

    def pause_writing(self) -> None:
        self._sent.clear()

    def resume_writing(self) -> None:
        self._sent.set()

    def connection_lost(self, exc: Exception | None) -> None:
        reason = GONE if exc is None else f"{GONE}: {exc}"
        for number, verdict in self._verdicts.items():
            settle(verdict, CommitRefused(number, reason))
        self._verdicts.clear()
        self._sent.set()
        settle(self._lost, reason)

    def data_received(self, data: bytes) -> None:
        try:
            self._take(self._frames.feed(data))
        except BadFrame as error:
            logger.error(  # noqa: TRY400
                "the supervisor sends what this worker does not understand: %s", error
            )
            self.close()

    def _take(self, messages: Iterable[FromSupervisor]) -> None:
        """Do what the supervisor says. Raises BadFrame, after what came before."""
        is_changed = False
        try:
            for message in messages:
                if isinstance(message, Ping):
                    self.send(Alive())
                elif isinstance(message, CommittedChange):
                    is_changed = True
                    self.changes.append(message)
                    self._decide(message.number, None)
                elif isinstance(message, CommitRefused):
                    self._decide(message.number, message)
                else:
                    self._when_staging(message)
        finally:
            if is_changed:
                self._when_changed()

    def _decide(self, number: int, refused: CommitRefused | None) -> None:
        verdict = self._verdicts.pop(number, None)
        if verdict is not None:
            settle(verdict, refused)


class WorkerJournal:
    """The image of the metadata at the worker's start, and all changes since."""

    def __init__(
        self,
        link: SupervisorLink,
        image: MetadataImage,
        end_offset: int,
        when_removed: Callable[[list[TopicImage]], None] = lambda _: None,
    ) -> None:
        """Take the image up to `end_offset`; the link has the changes after it. `when_removed` is called with
        the topics that a change has removed, after the listeners, also if one has failed.
        """
        self.folded = FoldedImage(None, image, end_offset)
        self._when_removed = when_removed
        self._link = link

    async def catch_up(self) -> None:
        """Fold in the changes that came, in the order of the log."""
        changes = self._link.changes
        while changes:
            change = changes.popleft()
            records = [decode_record(record) for record in change.records]
            topics = self.folded.image.topics_by_id
            ids = [record.topic_id for record in records if isinstance(record, RemoveTopicRecord)]
            removed = [topics[topic_id] for topic_id in ids if topic_id in topics]
            try:
                await self.folded.fold_in(records, change.end_offset)
            finally:
                if removed:
                    self._when_removed(removed)

    async def commit(self, records: Sequence[MetadataRecord]) -> bool:
        """Let the supervisor append the records behind the image's; fold them in. Raises StorageFailed."""
        refused = await self._link.commit(
            self.folded.end_offset, [encode_record(record) for record in records]
        )
        await self.catch_up()
        if refused is not None and refused.error is not None:
            raise StorageFailed(refused.error)
        return refused is None


class WorkerRounds:
    """The rounds of one worker's supervisor, as the worker sees them."""

    def __init__(self, link: SupervisorLink) -> None:
        self._link = link
        self._ended: asyncio.Future[RoundEnded] | None = None
        self._part: RoundPart | None = None

    async def stage(self) -> int:
        """Let all workers stage their shares, this one too; return the moment (ms). Raises StagingRefused."""
        self._ended = asyncio.get_running_loop().create_future()
        self._link.send(RoundWanted())
        ended = await self._ended
        if ended.failure is not None:
            raise StagingRefused(ended.failure)
        return ended.taken_ms

    def take(self, message: RoundStep | RoundEnded) -> RoundPart | None:
        """Take what the supervisor says; return this worker's part if a round has begun."""
        if isinstance(message, RoundEnded):
            if self._ended is not None:
                settle(self._ended, message)
        elif message.step == "prepare":
            self._part = RoundPart(self._link, message.number)
            return self._part
        elif self._part is not None and self._part.number == message.number:
            self._part.take(message)
        return None


class RoundPart:
    """The part of a worker in one round: `seqgate.gateway.runtime.upkeep.backup_staging.StagingPart`."""

    def __init__(self, link: SupervisorLink, number: int) -> None:
        self.number = number
        self._link = link
        self._last = RoundStep(number, "prepare")
        self._steps = asyncio.Event()

    def take(self, step: RoundStep) -> None:
        self._last = step
        self._steps.set()

    async def prepared(self) -> None:
        self._link.send(RoundReport(self.number))
        await self._next()
        if self._last.step != "hold":
            raise StagingRefused("the backup was given up")
        await self._link.sent()

    def hold(self) -> None:
        self._steps.clear()
        self._link.exchange(RoundReport(self.number), self._last.hold_s)
        if self._last.step != "go":
            raise StagingRefused(f"it stood still for {self._last.hold_s:g} s, and the others did not")

    async def linked(self, failure: str | None) -> None:
        self._link.send(RoundReport(self.number, failure))
        while self._last.step != "end":
            await self._next()

    async def _next(self) -> None:
        await self._steps.wait()
        self._steps.clear()


# The messages of a worker and its supervisor, a stream each way. Frame: length (uint32, big-endian), msgpack.

LENGTH_BYTES: Final = 4
MAX_FRAME_BYTES: Final = 1 << 30
"""A frame of more bytes ends the stream: the other process has gone wrong."""
READ_BYTES: Final = 1 << 16
OF_OTHERS: Final = -1
"""The number of a change that another process asked for."""


class Commit(msgspec.Struct, tag="commit", frozen=True):
    """A worker asks to append encoded records if the log ends at `end_offset`. The answer has the number."""

    number: int
    end_offset: int
    records: list[bytes]


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """A worker serves: the advertised address of each listener by name, and the bound addresses."""

    endpoints: dict[str, tuple[str, int]]
    bound: list[str]


class Alive(msgspec.Struct, tag="alive", frozen=True):
    """A worker answers a ping."""


class Left(msgspec.Struct, tag="left", frozen=True):
    """A worker has let the logs of a deleted topic go, and uses their directories no more."""

    topic_id: uuid.UUID


class RestartOrdered(msgspec.Struct, tag="restart", frozen=True):
    """A command has ordered a restart of all workers and their supervisor, under this name and at this moment
    of the monotonic clock.
    """

    restart: str
    at_s: float


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """A worker can't start, or must not go on; the sentence says why."""

    sentence: str


class RoundWanted(msgspec.Struct, tag="round", frozen=True):
    """A worker wants all workers to stage their shares for a backup; the answer is RoundEnded."""


class RoundReport(msgspec.Struct, tag="report", frozen=True):
    """A worker has done the last step of a round, or can't go on."""

    number: int
    failure: str | None = None


class CommittedChange(msgspec.Struct, tag="change", frozen=True):
    """These encoded records are durable in the metadata log, which ends at `end_offset` with them. `number`
    is that of the worker's own commit; OF_OTHERS for any other change.
    """

    end_offset: int
    records: list[bytes]
    number: int = OF_OTHERS


class CommitRefused(msgspec.Struct, tag="refused", frozen=True):
    """A commit was not carried out: another change, which was sent, was first; or `error` says why."""

    number: int
    error: str | None = None


class Ping(msgspec.Struct, tag="ping", frozen=True):
    """The supervisor asks for a sign of life."""


Step = Literal["prepare", "hold", "go", "end"]


class RoundStep(msgspec.Struct, tag="step", frozen=True):
    """The next step of a round (`seqgate.gateway.workers.staging_rounds`); `hold_s` limits a hold."""

    number: int
    step: Step
    hold_s: float = 0.0


class RoundEnded(msgspec.Struct, tag="ended", frozen=True):
    """The round that a worker wanted is over: when (ms) all workers stood still, or why they did not."""

    taken_ms: int
    failure: str | None = None


FromWorker = Commit | Ready | Alive | Left | RestartOrdered | Failed | RoundWanted | RoundReport
FromSupervisor = CommittedChange | CommitRefused | Ping | RoundStep | RoundEnded
from_worker: Final[msgspec.msgpack.Decoder[FromWorker]] = msgspec.msgpack.Decoder(FromWorker)
from_supervisor: Final[msgspec.msgpack.Decoder[FromSupervisor]] = msgspec.msgpack.Decoder(FromSupervisor)
T = TypeVar("T")


class BadFrame(Exception):
    """The stream is not one of frames."""


def encode(message: FromWorker | FromSupervisor) -> bytes:
    content = msgspec.msgpack.encode(message)
    return len(content).to_bytes(LENGTH_BYTES, "big") + content


class Frames(Generic[T]):
    def __init__(self, decoder: msgspec.msgpack.Decoder[T]) -> None:
        self._decoder = decoder
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[T]:
        """Add bytes, and yield the messages that are complete. Raises BadFrame."""
        self._buffer += data
        while len(self._buffer) >= LENGTH_BYTES:
            size_bytes = int.from_bytes(self._buffer[:LENGTH_BYTES], "big")
            if size_bytes > MAX_FRAME_BYTES:
                raise BadFrame(f"a frame has at most {MAX_FRAME_BYTES} bytes, not {size_bytes}")
            end = LENGTH_BYTES + size_bytes
            if len(self._buffer) < end:
                return
            content = bytes(self._buffer[LENGTH_BYTES:end])
            del self._buffer[:end]
            try:
                message = self._decoder.decode(content)
            except msgspec.MsgspecError as error:
                raise BadFrame(f"a message can't be decoded: {error}") from error
            yield message
