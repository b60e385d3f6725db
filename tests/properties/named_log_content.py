"""Creates batches for a log with producer names, and reads the whole log."""

from __future__ import annotations

from seqgate.log import PartitionLog
from seqgate.log.format.record_batch import whole_batches
from seqgate.log.format.records import NewRecord, build_batch, iterate_records
from tests.log.support import read_log
from tests.properties.history_of_names import Item, StoredBatch

TIMESTAMP = 1_000_000
Told = tuple[int, int, int, bool, bool | None, tuple[tuple[int, bytes], ...]]


def told(batch: StoredBatch) -> Told:
    records = tuple((offset, item.value) for offset, item in batch.items)
    return (
        batch.base_offset,
        batch.last_offset,
        batch.producer_id,
        batch.is_transactional,
        batch.commits,
        records,
    )


def read_all(log: PartitionLog) -> list[Told]:
    """Return every batch from log_start_offset to the end."""
    found: list[Told] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = read_log(log, offset, 4_000, upper_bound=log.log_end_offset)
        last = offset
        for position, header in whole_batches(data):
            records = list(iterate_records(data[position:]))
            commits = records[0].key == bytes((0, 0, 0, 1)) if header.is_control and records else None
            content = () if header.is_control else tuple((one.offset, one.value or b"") for one in records)
            found.append(
                (
                    header.base_offset,
                    header.last_offset,
                    header.producer_id,
                    header.is_transactional,
                    commits,
                    content,
                )
            )
            last = header.last_offset + 1
        if last <= offset:
            break
        offset = last
    return found


def encode(
    items: list[Item], producer_id: int, base_sequence: int, codec: str, *, is_transactional: bool
) -> bytes:
    records = []
    for item in items:
        headers: list[tuple[str, bytes | None]] = [("trace", b"1")]
        if item.name:
            headers += [("dedup.name", item.name), ("dedup.sequence", b"%d" % item.sequence_id)]
            if item.epoch >= 0:
                headers.append(("dedup.epoch", b"%d" % item.epoch))
        records.append(NewRecord(item.value, key=item.key, timestamp=TIMESTAMP, headers=headers))
    return build_batch(
        records,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )
