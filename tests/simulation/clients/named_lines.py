"""The lines of a named application, the batches that carry them, and the sender of these batches.

Every life of an application sends the same lines: a line's position in the source determines its sequence id,
its partition and its key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple
from zlib import crc32

from kio.schema.errors import ErrorCode

from tests.simulation.clients.batch import TRANSACTIONAL, ProducerBatch
from tests.simulation.clients.batch_sender import PRODUCE_VERSIONS, BatchSender, ErrorJudge
from tests.simulation.clients.partition_queue import PartitionQueue
from tests.simulation.clients.surroundings import Surroundings
from tests.simulation.events_of_names import NO_EPOCH, LineAcknowledged, LineName, LineSent, NameFenced
from tests.simulation.history import TopicPartition
from tests.support import batches

NAME_HEADER, SEQUENCE_HEADER, EPOCH_HEADER = b"dedup.name", b"dedup.sequence", b"dedup.epoch"
KEYS = 6
FIRST_SEQUENCES = (0, 0, 1, 1_000, 2**62)


class Line(NamedTuple):
    number: int
    sequence: int
    place: TopicPartition
    key: bytes


class Source:
    """The lines that an application reads, always the same. Sequence ids ascend, with gaps."""

    def __init__(self, name: str, topic: str, partitions: int, random: Random) -> None:
        self.name = name
        self.places = [TopicPartition(topic, partition) for partition in range(partitions)]
        self._random = random
        self._gaps = random.choice(((1,), (1, 1, 1, 2, 7), (1, 500)))
        self._next_sequence = random.choice(FIRST_SEQUENCES)
        self._lines: list[Line] = []

    def line(self, index: int) -> Line:
        while len(self._lines) <= index:
            number = len(self._lines)
            mixed = crc32(f"{self.name} {number}".encode())
            place = self.places[mixed % len(self.places)]
            key = f"{self.name}-{mixed // 64 % KEYS}".encode()
            self._lines.append(Line(number, self._next_sequence, place, key))
            self._next_sequence += self._random.choice(self._gaps)
        return self._lines[index]

    def first_after(self, sequence: int) -> int:
        """Return the number of the first line with a higher sequence id."""
        index = 0
        while self.line(index).sequence <= sequence:
            index += 1
        return index


@dataclass(frozen=True)
class Writer:
    """One life of an application, as its records identify it."""

    name: str
    life: int
    epoch: int = NO_EPOCH
    has_producer_id: bool = True

    def record(self, line: Line, transaction: int, padding_bytes: int) -> batches.Record:
        headers = [(NAME_HEADER, self.name.encode()), (SEQUENCE_HEADER, str(line.sequence).encode())]
        if self.epoch != NO_EPOCH:
            headers.append((EPOCH_HEADER, str(self.epoch).encode()))
        value = LineName(self.name, self.life, transaction, line.sequence).encode()
        return batches.Record(value + bytes(padding_bytes), line.key, headers)


@dataclass(eq=False)
class LineBatch(ProducerBatch):
    lines: tuple[Line, ...] = ()
    transaction: int = 0
    writer: Writer = field(default=Writer("", 0))

    def encode(self) -> bytes:
        """Encode the batch; every attempt with the same sequence has the same bytes.

        Without a producer id only the client knows the sequence.
        """
        if not self.encoded:
            records = [self.writer.record(line, self.transaction, self.padding_bytes) for line in self.lines]
            attributes = TRANSACTIONAL if self.transactional else 0
            batch = batches.Batch(
                records, codec=self.codec, attributes=attributes, base_timestamp=self.timestamp_ms
            )
            if self.writer.has_producer_id:
                batch = batch.of(self.producer_id, self.producer_epoch, self.base_sequence)
            self.encoded = batch.encode()
        return self.encoded


class LineSender(BatchSender):
    """Sends lines.

    `on_sent` and `on_acknowledged` are called for each line, `on_lost` when a batch is given up, and with it
    all later ones.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        name: str,
        random: Random,
        judge: ErrorJudge,
        writer: Writer,
        *,
        transactional_id: str | None = None,
        may_be_fenced: Callable[[], bool] = lambda: False,
        produce_versions: tuple[int, ...] = PRODUCE_VERSIONS,
    ) -> None:
        super().__init__(surroundings, name, random, judge, transactional_id, may_be_fenced, produce_versions)
        self._writer = writer
        self.max_in_flight = self.max_in_flight if writer.has_producer_id else 1
        self.on_sent: Callable[[Line], None] = lambda line: None
        self.on_acknowledged: Callable[[Line], None] = lambda line: None
        self.on_lost: Callable[[str], None] = lambda error: None

    @property
    def waiting_batches(self) -> int:
        return sum(len(queue.waiting) for queue in self.queues.values())

    def enqueue_lines(self, lines: list[Line]) -> None:
        """Enqueue lines in their order, in one batch for each partition."""
        by_place: dict[TopicPartition, list[Line]] = {}
        for line in lines:
            by_place.setdefault(line.place, []).append(line)
        for place, here in by_place.items():
            batch = LineBatch(
                place,
                len(here),
                self._surroundings.now(),
                self._random.choice(self._codecs),
                self._surroundings.wall_ms(),
                tuple(line.key for line in here),
                transactional=self._transactional_id is not None,
                padding_bytes=self._random.choice(self._surroundings.padding_bytes) // len(here),
                lines=tuple(here),
                transaction=self.transaction,
                writer=self._writer,
            )
            self.queue(place).waiting.append(batch)
        self.woken.set()

    def _names(self, batch: LineBatch) -> list[LineName]:
        writer = self._writer
        return [LineName(writer.name, writer.life, batch.transaction, line.sequence) for line in batch.lines]

    def _note_sent(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        assert isinstance(batch, LineBatch)
        at_ms = self._surroundings.at_ms()
        for line, name in zip(batch.lines, self._names(batch), strict=True):
            self._surroundings.history.add(LineSent(at_ms, name, line.place, self._writer.epoch, line.key))
            self.on_sent(line)

    def _note_acknowledged(self, batch: ProducerBatch, base_offset: int) -> None:
        assert isinstance(batch, LineBatch)
        at_ms = self._surroundings.at_ms()
        is_sure = base_offset >= 0 and not batch.sequence_was_reset
        for index, (line, name) in enumerate(zip(batch.lines, self._names(batch), strict=True)):
            offset = base_offset + index if is_sure else -1
            self._surroundings.history.add(LineAcknowledged(at_ms, name, line.place, offset))
            self.on_acknowledged(line)

    def _note_given_up(self, batch: ProducerBatch, error: str) -> None:
        self.on_lost(error)

    def _record_refusal(self, queue: PartitionQueue, batch: ProducerBatch, error: ErrorCode) -> None:
        """Record a refusal. PRODUCER_FENCED is left to the checkers."""
        if error is ErrorCode.producer_fenced:
            writer, place = self._writer, batch.partition
            fenced = NameFenced(self._surroundings.at_ms(), writer.name, writer.life, writer.epoch, place)
            self._surroundings.history.add(fenced)
        else:
            super()._record_refusal(queue, batch, error)
