"""How stored records differ from those that were sent: lost, doubled, unexpected, reordered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from seqgate.gateway.testing.stored import StoredRecord

Value = bytes | None
_NAMED: Final = 10
"""Records that an explanation names; it counts the others."""


class Reordered(NamedTuple):
    """A record that is stored after `before`, although it was sent earlier. Both are in one partition."""

    record: StoredRecord
    before: StoredRecord

    def __str__(self) -> str:
        record, before = self.record, self.before
        return (
            f"reordered: {shown(record.value)} was sent before {shown(before.value)}, and is stored after it "
            f"({record.topic}-{record.partition}, offsets {record.offset} and {before.offset})"
        )


class Differences(NamedTuple):
    """The faults of stored records. `lost` and `doubled` name a value once for each record."""

    lost: Sequence[Value]
    doubled: Sequence[Value]
    unexpected: Sequence[Value]
    reordered: Sequence[Reordered]
    """The records that stand too late, in each partition."""


def differences(stored: Sequence[StoredRecord], expected: Iterable[Value]) -> Differences:
    """Return how stored records differ from the values that were sent, which are `expected` in their order.
    In each partition the records must have this order.
    """
    wanted = list(expected)
    have = Counter(record.value for record in stored)
    want = Counter(wanted)
    return Differences(
        lost=list((want - have).elements()),
        doubled=list(Counter({value: have[value] - want[value] for value in want}).elements()),
        unexpected=[value for value in have.elements() if value not in want],
        reordered=list(_reordered(stored, wanted)),
    )


def explain_differences(stored: Sequence[StoredRecord], expected: Iterable[Value]) -> str | None:
    """Return a sentence that names what is wrong with the values of stored records, None if nothing is."""
    wrong = differences(stored, expected)
    complaints = [
        _named("lost", wrong.lost),
        _named("doubled", wrong.doubled),
        _named("unexpected", wrong.unexpected),
        *map(str, wrong.reordered),
    ]
    return "; ".join(filter(None, complaints)) or None


def _reordered(stored: Sequence[StoredRecord], wanted: Sequence[Value]) -> Iterator[Reordered]:
    """Yield each record that stands after one that was sent later."""
    times = Counter(wanted)
    # A value that was sent twice has no one place in the order.
    sent = {value: number for number, value in enumerate(wanted) if times[value] == 1}
    newest: dict[tuple[str, int], StoredRecord] = {}
    seen: set[tuple[str, int, Value]] = set()
    for record in sorted(stored, key=lambda each: (each.topic, each.partition, each.offset)):
        place = record.topic, record.partition
        if record.value not in sent or (*place, record.value) in seen:
            continue
        seen.add((*place, record.value))
        before = newest.get(place)
        if before is not None and sent[record.value] < sent[before.value]:
            yield Reordered(record, before)
        else:
            newest[place] = record


def _named(word: str, values: Sequence[Value]) -> str:
    if not values:
        return ""
    named = ", ".join(map(shown, values[:_NAMED]))
    more = f" and {len(values) - _NAMED} more" if len(values) > _NAMED else ""
    return f"{len(values)} {word}: {named}{more}"


def shown(value: Value) -> str:
    """Return a value for people, cut after 60 bytes."""
    if value is None:
        return "null"
    return repr(value if len(value) <= 60 else value[:60] + b"...")[1:]
