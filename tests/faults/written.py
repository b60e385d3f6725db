"""The batches that a log was given, the batches that it returns, and the transactions in them."""

from __future__ import annotations

from dataclasses import dataclass

from seqgate.log import PartitionLog
from seqgate.log.format.record_batch import BatchHeader, whole_batches
from seqgate.log.format.records import iterate_records
from tests.log.support import read_log

TRANSACTIONAL = (10, 11, 12)
"""Producer ids that write in transactions. Markers of the odd one raise its epoch, as in transactions version
2.
"""
COORDINATOR_EPOCH = 4
COMMIT_KEY = bytes((0, 0, 0, 1))


@dataclass
class Written:
    """A batch that the log accepted: its place and its contents."""

    base_offset: int
    producer_id: int
    base_sequence: int
    values: list[bytes]
    producer_epoch: int = 0
    is_transactional: bool = False
    marker: bool | None = None
    """Whether a marker commits; None for other batches."""

    @property
    def end_offset(self) -> int:
        return self.base_offset + len(self.values)


def read_all(log: PartitionLog) -> list[Written]:
    """Return every batch from log_start_offset to the end."""
    found: list[Written] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        batches = _whole_batches(read_log(log, offset, 500, upper_bound=log.log_end_offset))
        assert batches, f"no whole batch at offset {offset}"
        found += batches
        offset = batches[-1].end_offset
    return found


def _written(header: BatchHeader, data: bytes) -> Written:
    records = list(iterate_records(data))
    return Written(
        header.base_offset,
        header.producer_id,
        header.base_sequence,
        [record.value or b"" for record in records],
        header.producer_epoch,
        is_transactional=header.is_transactional,
        marker=records[0].key == COMMIT_KEY if header.is_control else None,
    )


@dataclass
class TransactionalProducer:
    """The state of a transactional producer, as its batches say."""

    producer_epoch: int = 0
    next_sequence: int = 0
    first_offset: int | None = None
    batches: int = 0


class Transactions:
    """The transactions in all batches of a log, from offset 0 on, found by reading one batch after the other."""

    def __init__(self, written: list[Written]) -> None:
        self.states = {producer_id: TransactionalProducer() for producer_id in TRANSACTIONAL}
        self.ended: list[tuple[int, int]] = []
        """(first offset, offset of the marker) of each ended transaction."""
        self.fates: list[tuple[Written, bool | None]] = []
        """Each batch of records, and whether it is committed; None while its transaction is open."""
        for batch in written:
            if batch.is_transactional:
                self._follow(batch)
            else:
                self.fates.append((batch, True))

    def _follow(self, batch: Written) -> None:
        state = self.states[batch.producer_id]
        state.batches += 1
        if batch.marker is None:
            self.fates.append((batch, None))
            state.next_sequence = batch.base_sequence + len(batch.values)
            state.first_offset = batch.base_offset if state.first_offset is None else state.first_offset
            return
        self.fates = [
            (one, batch.marker if fate is None and one.producer_id == batch.producer_id else fate)
            for one, fate in self.fates
        ]
        if state.first_offset is not None:
            self.ended.append((state.first_offset, batch.base_offset))
        state.first_offset = None
        if batch.producer_epoch != state.producer_epoch:
            state.producer_epoch, state.next_sequence = batch.producer_epoch, 0

    def last_stable_offset(self, log_start_offset: int, high_watermark: int) -> int:
        firsts = [state.first_offset for state in self.states.values() if state.first_offset is not None]
        firsts += [
            first_offset for first_offset, marker_offset in self.ended if marker_offset >= high_watermark
        ]
        return max(min([high_watermark, *firsts]), log_start_offset)

    def committed(self, offset: int, end_offset: int) -> list[bytes]:
        return [
            value
            for batch, fate in self.fates
            for value in batch.values
            if fate and offset < batch.end_offset <= end_offset
        ]


def committed_values(log: PartitionLog, offset: int) -> list[bytes]:
    """Return the values that a consumer of committed records gets from `offset` on."""
    values = []
    while offset < log.last_stable_offset:
        region = log.find(offset, 500, upper_bound=log.last_stable_offset)
        assert region is not None
        told = sorted(log.aborted_in(offset, region), key=lambda aborted: aborted[1])
        left_out: set[int] = set()
        for batch in _whole_batches(log.read_region(region)):
            offset = batch.end_offset
            while told and told[0][1] <= batch.end_offset - 1:
                left_out.add(told.pop(0)[0])
            if batch.marker is not None:
                left_out.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in left_out):
                values += batch.values
    return values


def _whole_batches(data: bytes) -> list[Written]:
    return [_written(header, data[position:]) for position, header in whole_batches(data)]
