"""Checks that the gateway reports the right state of a producer name, and fences exactly the lives with an
older name epoch.
"""

from __future__ import annotations

from collections import defaultdict

from tests.simulation.checkers.facts import Facts, place
from tests.simulation.checkers.lines import Lines, Stream, lines_of, told_line
from tests.simulation.checkers.watermarks import Told
from tests.simulation.events_of_names import LineAcknowledged, LineSent, NameFenced, NameTold
from tests.simulation.history import FinalRead, GatewayCrashed, TopicPartition


def names_told(facts: Facts) -> list[str]:
    """Find wrong sequence ids: reported as persisted but not stored, lower than an earlier report, or lower
    than a known id. A reported id may lag behind acknowledged ones while later records wait for their flush.

    At the end of the run, when nothing is in flight, the reported sequence id must be the highest stored one.
    """
    lines = Lines(facts)
    breaches = []
    known = _KnownBefore(lines)
    for event in lines.told:
        for partition, sequence in event.sequences:
            stream = Stream(event.name, partition)
            what = f"{event.at_ms} ms: {sequence} was told of {event.name} in {place(partition)}"
            if sequence >= 0 and not _is_stored(lines, stream, sequence):
                breaches.append(f"{what}, and it is not stored")
            if partition.topic not in facts.history.switched:
                least, at_ms = known.before(stream, event.asked_at_ms)
                if sequence < least and not _may_lag(lines, stream, least, event):
                    breaches.append(
                        f"{what}, asked for at {event.asked_at_ms} ms, and at {at_ms} ms {least} was known"
                    )
            known.told(stream, event.at_ms, sequence)
    return breaches + _check_last(facts, lines)


def _is_stored(lines: Lines, stream: Stream, sequence: int) -> bool:
    return sequence in lines.keys[stream] and (
        sequence in lines.visible[stream] or lines.may_be_gone(stream, sequence)
    )


def _may_lag(lines: Lines, stream: Stream, known: int, told: NameTold) -> bool:
    """Return whether a record above the known sequence id may have waited for its flush when the id was
    reported.

    A reported id lags while records wait (`NameEntry.persisted_sequence`), but never behind an earlier
    report.
    """
    if any(
        (partition, name.name) == (stream.partition, stream.name) and sequence == known
        for name in lines.told
        if name.at_ms < told.asked_at_ms
        for partition, sequence in name.sequences
    ):
        return False
    begun_ms = max(
        (crash.at_ms for crash in lines.facts.all(GatewayCrashed) if crash.at_ms < told.asked_at_ms),
        default=0,
    )
    answered = {
        event.line.sequence
        for event in lines.facts.all(LineAcknowledged)
        if Stream(event.line.name, event.partition) == stream and event.at_ms < told.asked_at_ms
    }
    return any(
        begun_ms <= sent.at_ms <= told.at_ms
        and sent.line.sequence > known
        and sent.line.sequence not in answered
        and Stream(sent.line.name, sent.partition) == stream
        for sent in lines.facts.all(LineSent)
    )


class _KnownBefore:
    """The highest sequence id that was reported by a time, or acknowledged outside of transactions."""

    def __init__(self, lines: Lines) -> None:
        self._acknowledged: dict[Stream, Told] = defaultdict(Told)
        self._told: dict[Stream, Told] = defaultdict(Told)
        for event in lines.acknowledged:
            if not event.line.transaction:
                stream = Stream(event.line.name, event.partition)
                self._acknowledged[stream].add(event.at_ms, event.line.sequence)

    def told(self, stream: Stream, at_ms: int, sequence: int) -> None:
        self._told[stream].add(at_ms, sequence)

    def before(self, stream: Stream, at_ms: int) -> tuple[int, int]:
        return max(self._acknowledged[stream].before(at_ms), self._told[stream].before(at_ms))


def _check_last(facts: Facts, lines: Lines) -> list[str]:
    breaches = []
    is_last = False
    for event in facts.history.events:
        is_last = is_last or isinstance(event, FinalRead)
        if not is_last or not isinstance(event, NameTold):
            continue
        for partition, sequence in event.sequences:
            highest = max(lines.visible[Stream(event.name, partition)], default=-1)
            if sequence < highest:
                breaches.append(
                    f"{event.at_ms} ms: {sequence} was told of {event.name} in {place(partition)} at the "
                    f"end, and {highest} is stored"
                )
    return breaches


def names_fenced(facts: Facts) -> list[str]:
    """Find lives that were fenced without a newer epoch, and lines of an older name epoch after lines of a
    newer one.
    """
    breaches = []
    newest: dict[tuple[str, TopicPartition], int] = {}
    for event in facts.history.events:
        if isinstance(event, LineSent):
            stream = event.line.name, event.partition
            newest[stream] = max(newest.get(stream, -1), event.epoch)
        elif isinstance(event, NameFenced) and event.epoch >= newest.get((event.name, event.partition), -1):
            breaches.append(
                f"{event.at_ms} ms: life {event.life} of {event.name} was fenced in {place(event.partition)} "
                f"with epoch {event.epoch}, and nobody has a newer one"
            )
    return breaches + _check_log(facts) + _check_late(facts)


def _check_log(facts: Facts) -> list[str]:
    breaches = []
    for partition, reading in facts.uncommitted.items():
        if partition.topic in facts.history.switched:
            continue
        newest: dict[str, LineSent] = {}
        for offset, line in lines_of(facts, reading):
            sent = facts.lines_sent[line]
            before = newest.get(line.name)
            if before is not None and sent.epoch < before.epoch:
                breaches.append(
                    f"{place(partition, offset)} holds {told_line(line)} of epoch {sent.epoch} after "
                    f"{told_line(before.line)} of epoch {before.epoch}"
                )
            else:
                newest[line.name] = sent
    return breaches


def _check_late(facts: Facts) -> list[str]:
    """Find acknowledged lines of an older epoch that were sent after one of a newer epoch was acknowledged."""
    lines = Lines(facts)
    stored: dict[Stream, list[tuple[int, int]]] = defaultdict(list)
    for partition, reading in facts.uncommitted.items():
        if partition.topic in facts.history.switched:
            continue
        for _, line in lines_of(facts, reading):
            told = lines.first_acknowledged.get(line)
            if told is not None:
                epoch = facts.lines_sent[line].epoch
                stored[Stream(line.name, partition)].append((told.at_ms, epoch))
    for line, told in lines.first_acknowledged.items():
        # a batch of duplicates fences, too, although nothing of it is stored
        if not line.transaction and told.partition.topic not in facts.history.switched:
            stored[Stream(line.name, told.partition)].append((told.at_ms, facts.lines_sent[line].epoch))
    breaches = []
    for line, told in lines.first_acknowledged.items():
        sent = facts.lines_sent[line]
        fences = stored[Stream(line.name, told.partition)]
        if any(at_ms < sent.at_ms and epoch > sent.epoch for at_ms, epoch in fences):
            breaches.append(
                f"{told.at_ms} ms: {told_line(line)} of epoch {sent.epoch}, sent at {sent.at_ms} ms, was "
                f"acknowledged, and a newer epoch had been by then"
            )
    return breaches
