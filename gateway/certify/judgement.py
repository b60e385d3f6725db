"""Judges one run of an application: what it claimed, what the topic holds, and how it ended. Pure."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from seqgate.gateway.certify.scene import Struck
from seqgate.gateway.testing import StoredRecord
from seqgate.gateway.testing.stored import Reordered, Value, differences, shown

_NAMED: Final = 3
"""Records of one kind that a complaint names; it counts the others."""


class Verdict(enum.StrEnum):
    """The verdict on the application after a run."""

    PASSED = "passed"
    FAILED = "failed"
    """It lost, doubled or reordered a record, or stored one that nobody gave to it."""
    HUNG = "hung"
    NOT_STRUCK = "not struck"
    """A fault of the script never struck, so the run shows nothing."""
    GAVE_UP = "gave up"
    """It reported a failure after which a correct producer goes on."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How an application ended. `exit_code` is None if it hung and was killed; `acknowledged` are the values
    that it printed.
    """

    exit_code: int | None
    seconds: float
    acknowledged: frozenset[bytes] = frozenset()
    errors: str = ""
    """The end of its standard error."""

    @property
    def claims_all(self) -> bool:
        """Whether the application claims that all values are acknowledged."""
        return self.exit_code == 0

    def __str__(self) -> str:
        if self.exit_code is None:
            return "hung"
        return "finished" if self.claims_all else f"gave up with exit code {self.exit_code}"


class Doubled(NamedTuple):
    """A value that is stored several times."""

    value: Value
    records: Sequence[StoredRecord]


@dataclass(frozen=True, slots=True)
class Findings:
    """The faults of the stored records. `lost` are acknowledged values that are not stored."""

    lost: Sequence[bytes]
    doubled: Sequence[Doubled]
    reordered: Sequence[Reordered]
    unexpected: Sequence[StoredRecord]

    def __bool__(self) -> bool:
        return any((self.lost, self.doubled, self.reordered, self.unexpected))

    def complaints(self) -> Iterator[str]:
        """Yield a sentence for each kind of wrong record."""
        if self.lost:
            yield f"lost {_some([shown(value) for value in self.lost])}"
        if self.doubled:
            yield f"doubled {_some([f'{shown(each.value)} ({_places(each.records)})' for each in self.doubled])}"
        if self.reordered:
            late = [
                f"{shown(each.record.value)} behind {shown(each.before.value)} "
                f"({_places([each.record, each.before])})"
                for each in self.reordered
            ]
            yield f"reordered {_some(late)}"
        if self.unexpected:
            found = [f"{shown(each.value)} ({_places([each])})" for each in self.unexpected]
            yield f"unexpected {_some(found)}"


def find(sent: Sequence[bytes], stored: Sequence[StoredRecord], ending: Ending) -> Findings:
    """Return what is wrong with stored records. `sent` are the values that the application got, each once, in
    their order.

    A value that is not stored is lost only if the application claimed that it is acknowledged.
    """
    wrong = differences(stored, sent)
    doubled = set(wrong.doubled)
    places: dict[Value, list[StoredRecord]] = {}
    for record in stored:
        places.setdefault(record.value, []).append(record)
    unexpected = set(wrong.unexpected)
    missing = [value for value in wrong.lost if value is not None]
    return Findings(
        lost=[value for value in missing if ending.claims_all or value in ending.acknowledged],
        doubled=[Doubled(value, places[value]) for value in sent if value in doubled],
        reordered=wrong.reordered,
        unexpected=[record for record in stored if record.value in unexpected],
    )


def judge(
    findings: Findings, ending: Ending, struck: Collection[Struck], *, may_give_up: bool = False
) -> Verdict:
    """Return what a run shows. What is worse comes first: a lost record counts, whether or not each fault
    struck.
    """
    if findings:
        return Verdict.FAILED
    if ending.exit_code is None:
        return Verdict.HUNG
    if not struck or any(not each.times for each in struck):
        return Verdict.NOT_STRUCK
    if not ending.claims_all and not may_give_up:
        return Verdict.GAVE_UP
    return Verdict.PASSED


def _some(texts: Sequence[str]) -> str:
    """Return the count of records, and the first of them."""
    more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return f"{len(texts)}: {', '.join(texts[:_NAMED])}{more}"


def _places(records: Sequence[StoredRecord]) -> str:
    """Return the offsets of records, by partition."""
    offsets: dict[str, list[str]] = {}
    for each in records:
        offsets.setdefault(f"{each.topic}-{each.partition}", []).append(str(each.offset))
    return ", ".join(f"{partition}: {', '.join(found)}" for partition, found in offsets.items())
