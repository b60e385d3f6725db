"""Events of producers over time, from samples of their last sequences and from verdicts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from gateway.admin.producers.messages import ProducerRow
from gateway.admin.verdicts.messages import VerdictRow

ACCEPTED: Final = "accepted"
DUPLICATE: Final = "duplicate"
REFUSED: Final = "refused"
SAMPLED: Final = "sampled"
"""The series that has a value wherever the producers could be read."""
SEQUENCES: Final = 1 << 31
"""Sequences run from 0 to 2**31 - 1, and begin again at 0."""

Values = Sequence[float | None]


class Event(NamedTuple):
    """Batches of a producer that met the same fate. `first` and `last` are sequences, -1 where nobody knows them.

    `records` counts the records; None for a producer whose earlier sequences nobody has seen. `offset` is the offset of the last accepted
    record, or of a duplicate's original; -1 where nobody knows it. `outcome` names the error of a refused batch.
    """

    time_ms: int
    kind: str
    first: int
    last: int
    records: int | None
    offset: int
    epoch: int
    outcome: str = ""


def key_of(topic: str, partition: int, producer_id: int) -> str:
    """Return the name of a producer's strip."""
    return f"{partition}/{producer_id}/{topic}"


def series_names(key: str) -> tuple[str, str, str, str]:
    """Return the series of a producer: epoch, last sequence, last offset, and time since its last batch."""
    return f"epoch {key}", f"sequence {key}", f"offset {key}", f"age {key}"


def sample_of(rows: Iterable[ProducerRow]) -> dict[str, float | None]:
    """Return the values of all series at one time."""
    values: dict[str, float | None] = {SAMPLED: 1}
    for row in rows:
        names = series_names(key_of(row.topic, row.partition, row.producer_id))
        numbers = (row.producer_epoch, row.last_sequence, row.last_offset, row.age_ms)
        values.update(zip(names, numbers, strict=True))
    return values


def accepted(times: Sequence[int], series: Mapping[str, Values], key: str) -> list[Event]:
    """Return what a producer wrote between samples. The first sample is only where counting begins."""
    epochs, sequences, offsets, _ = (series[name] for name in series_names(key))
    found: list[Event] = []
    before: tuple[int, int] | None = None
    was_absent = False
    for index, time_ms in enumerate(times):
        epoch, sequence, offset = epochs[index], sequences[index], offsets[index]
        if epoch is None or sequence is None:
            was_absent = was_absent or series[SAMPLED][index] is not None
            continue
        now = (int(epoch), int(sequence))
        if now != before and now[1] >= 0 and (before is not None or was_absent):
            first, records = _grown(before, now)
            last_offset = -1 if offset is None else int(offset)
            found.append(Event(time_ms, ACCEPTED, first, now[1], records, last_offset, now[0]))
        before = now
    return found


def _grown(before: tuple[int, int] | None, now: tuple[int, int]) -> tuple[int, int | None]:
    """Return the first new sequence, and the number of new records."""
    if before is None:
        return -1, None
    if before[0] != now[0]:
        return 0, now[1] + 1
    return (before[1] + 1) % SEQUENCES, (now[1] - before[1]) % SEQUENCES


def judged(row: VerdictRow) -> Event:
    """Return the event of a batch that was not stored."""
    is_duplicate = row.outcome == DUPLICATE
    known = row.base_sequence >= 0 and row.last_sequence >= 0
    return Event(
        time_ms=row.time_ms,
        kind=DUPLICATE if is_duplicate else REFUSED,
        first=row.base_sequence,
        last=row.last_sequence,
        records=(row.last_sequence - row.base_sequence) % SEQUENCES + 1 if known else None,
        offset=row.base_offset,
        epoch=row.producer_epoch,
        outcome="" if is_duplicate else row.outcome,
    )
