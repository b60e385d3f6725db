"""Writes small histories by hand, for the tests of the checkers."""

from __future__ import annotations

from tests.simulation.checkers import check
from tests.simulation.history import (
    Acknowledged,
    Event,
    Fetched,
    FinalRead,
    GivenUp,
    GotProducerId,
    History,
    Marker,
    OffsetsCommitted,
    OffsetsCommitting,
    OffsetsFetched,
    RecordName,
    Sent,
    TopicPartition,
    TransactionEnded,
    TransactionEnding,
)

P0 = TopicPartition("flights", 0)
P1 = TopicPartition("flights", 1)
KEYED = TopicPartition("latest", 0)
Row = RecordName | bool | None


def rec(
    number: int, producer: str = "p", incarnation: int = 0, transaction: int = 0, partition: int = 0
) -> RecordName:
    return RecordName(producer, incarnation, transaction, partition, number)


class Story:
    """A history under construction: its clock ticks 10 ms with every event."""

    def __init__(self, **about: object) -> None:
        self.history = History(**about)  # type: ignore[arg-type]
        self.now_ms = 0

    def tick(self) -> int:
        self.now_ms += 10
        return self.now_ms

    def sent(self, *names: RecordName, partition: TopicPartition = P0, key: bytes = b"") -> None:
        for name in names:
            self.history.add(Sent(self.tick(), name, partition, key))

    def acknowledged(
        self, name: RecordName, offset: int, partition: TopicPartition = P0, key: bytes = b""
    ) -> None:
        """Add an acknowledgement, and before it the record's Sent event if that is missing."""
        if not any(isinstance(event, Sent) and event.name == name for event in self.history.events):
            self.sent(name, partition=partition, key=key)
        self.history.add(Acknowledged(self.tick(), name, partition, offset))

    def given_up(self, name: RecordName, partition: TopicPartition = P0) -> None:
        self.sent(name, partition=partition)
        self.history.add(GivenUp(self.tick(), name, partition, "timed out"))

    def ending(
        self,
        transaction: int,
        *,
        commit: bool = True,
        ended: bool = True,
        offsets: tuple[tuple[TopicPartition, int], ...] = (),
    ) -> None:
        group = "g" if offsets else ""
        self.history.add(TransactionEnding(self.tick(), "t", 0, transaction, commit, group, offsets))
        if ended:
            self.history.add(TransactionEnded(self.tick(), "t", 0, transaction, commit))

    def fetched(
        self,
        rows: list[Row],
        *,
        partition: TopicPartition = P0,
        begin: int = 0,
        read_committed: bool = False,
        high_watermark: int | None = None,
        last_stable_offset: int | None = None,
        log_start_offset: int = 0,
        asked_at_ms: int | None = None,
        next_offset: int | None = None,
    ) -> None:
        """Add a Fetch answer. `rows` has a record, a marker's kind, or nothing for each offset from `begin`
        on.
        """
        end = begin + len(rows) if next_offset is None else next_offset
        high_watermark = end if high_watermark is None else high_watermark
        asked_at_ms = self.tick() if asked_at_ms is None else asked_at_ms
        at = list(enumerate(rows, begin))
        self.history.add(
            Fetched(
                self.tick(),
                "c",
                partition,
                read_committed,
                begin,
                end,
                tuple((offset, row.encode()) for offset, row in at if isinstance(row, RecordName)),
                high_watermark,
                high_watermark if last_stable_offset is None else last_stable_offset,
                log_start_offset,
                tuple(Marker(offset, 7, 0, row) for offset, row in at if isinstance(row, bool)),
                asked_at_ms,
            )
        )

    def final(
        self,
        rows: list[Row],
        committed: list[Row] | None = None,
        *,
        partition: TopicPartition = P0,
        begin: int = 0,
        **fields: int,
    ) -> None:
        if not any(isinstance(event, FinalRead) for event in self.history.events):
            self.history.add(FinalRead(self.tick()))
        self.fetched(rows, partition=partition, begin=begin, log_start_offset=begin, **fields)
        committed = rows if committed is None else committed
        self.fetched(
            committed, partition=partition, begin=begin, log_start_offset=begin, read_committed=True, **fields
        )

    def offsets_fetched(self, offset: int, *, asked_at_ms: int | None = None) -> None:
        asked_at_ms = self.tick() if asked_at_ms is None else asked_at_ms
        self.history.add(OffsetsFetched(self.tick(), "g", ((P0, offset),), asked_at_ms))

    def committing(
        self,
        offset: int,
        *,
        answered: bool = True,
        member: str = "m",
        generation: int = -1,
        member_epoch: int = -1,
    ) -> None:
        asked_at_ms = self.tick()
        offsets = ((P0, offset),)
        self.history.add(OffsetsCommitting(asked_at_ms, "g", member, offsets, generation, member_epoch))
        if answered:
            self.history.add(OffsetsCommitted(self.tick(), "g", member, ((P0, offset),), asked_at_ms))

    def add(self, event: Event) -> None:
        self.history.add(event)

    def got_id(
        self,
        incarnation: int,
        producer_id: int,
        epoch: int,
        *,
        tx: str = "",
        producer: str = "t",
        asked_at_ms: int | None = None,
    ) -> None:
        asked_at_ms = self.tick() if asked_at_ms is None else asked_at_ms
        self.add(GotProducerId(self.tick(), producer, incarnation, producer_id, epoch, tx, asked_at_ms))

    def found(self) -> set[str]:
        return set(check(self.history))
