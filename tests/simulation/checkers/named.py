"""Checks that every line of a named application is stored once and in order, however often and by whichever
life it is sent. Aborted lines do not count.
"""

from __future__ import annotations

from collections import defaultdict

from tests.simulation.checkers.facts import NEVER, Facts, place
from tests.simulation.checkers.lines import Lines, Stream, lines_of, told_line, transaction_of
from tests.simulation.events_of_names import LineName
from tests.simulation.history import Fetched, TopicPartition


def named_lost(facts: Facts) -> list[str]:
    """Find missing lines: acknowledged ones, be it as duplicates, and lines below a stored one."""
    lines = Lines(facts)
    breaches, missed = [], set()
    for event in lines.acknowledged:
        stream = Stream(event.line.name, event.partition)
        sequence = event.line.sequence
        if sequence not in lines.visible[stream] and not lines.may_be_gone(stream, sequence):
            missed.add((stream, sequence))
            breaches.append(
                f"{event.at_ms} ms: {told_line(event.line)} of {place(event.partition)} was acknowledged "
                f"and is not stored"
            )
    for stream, sent in lines.keys.items():
        highest = max(lines.visible[stream], default=-1)
        for sequence in sorted(sent):
            if sequence > highest or sequence in lines.visible[stream] or (stream, sequence) in missed:
                continue
            if not lines.may_be_gone(stream, sequence):
                breaches.append(
                    f"{stream.name}: sequence id {highest} is stored in {place(stream.partition)}, "
                    f"and {sequence}, which was sent before, is not"
                )
    return breaches


def named_places(facts: Facts) -> list[str]:
    """Find lines that are not at the offset of their acknowledgement, or in a partition to which they were
    not sent.
    """
    lines = Lines(facts)
    breaches = []
    for partition, reading in facts.uncommitted.items():
        for offset, line in lines_of(facts, reading):
            told = lines.first_acknowledged.get(line)
            if facts.lines_sent[line].partition != partition:
                breaches.append(f"{place(partition, offset)} holds {told_line(line)}: nobody sent it there")
            elif told and told.offset not in {-1, offset} and partition.topic not in facts.history.switched:
                breaches.append(
                    f"{told.at_ms} ms: {told_line(line)} was acknowledged at {place(partition, told.offset)} "
                    f"and is at offset {offset}"
                )
    return breaches


def named_doubled(facts: Facts) -> list[str]:
    """Find lines that were read as committed at several offsets, unless deduplication may have been off when
    one was written.
    """
    lines = Lines(facts)
    breaches = []
    places: dict[tuple[str, TopicPartition, int], dict[int, LineName]] = defaultdict(dict)
    for event in facts.all(Fetched):
        if not event.read_committed:
            continue
        for offset, line in lines_of(facts, event):
            known = places[line.name, event.partition, line.sequence]
            if known and offset not in known and not _may_be_doubled(lines, event.partition, known, line):
                first, other = next(iter(known.items()))
                breaches.append(
                    f"{event.at_ms} ms: {told_line(line)} was read at {place(event.partition, offset)}, "
                    f"and {told_line(other)} at offset {first}"
                )
            known[offset] = line
    return breaches


def _may_be_doubled(
    lines: Lines, partition: TopicPartition, known: dict[int, LineName], line: LineName
) -> bool:
    if partition.topic not in lines.facts.history.switched:
        return False
    reading = lines.facts.uncommitted.get(partition)
    if reading is not None and reading.log_start_offset:
        return True  # the log does not remember lines that were deleted while deduplication was off
    return any(_may_be_written_when_off(lines, partition.topic, each) for each in (*known.values(), line))


def _may_be_written_when_off(lines: Lines, topic: str, line: LineName) -> bool:
    sent, told = lines.facts.lines_sent[line], lines.first_acknowledged.get(line)
    known_ms = told.at_ms if told else NEVER
    return any(sent.at_ms <= end and known_ms >= begin for begin, end in lines.off_ms[topic])


def named_order(facts: Facts) -> list[str]:
    """Find committed lines of a name that follow a line with a higher sequence id in their partition."""
    breaches = []
    for partition, reading in facts.committed.items():
        if partition.topic in facts.history.switched:
            continue
        highest: dict[str, LineName] = {}
        for offset, line in lines_of(facts, reading):
            before = highest.get(line.name)
            if before is not None and line.sequence < before.sequence:
                breaches.append(
                    f"{place(partition, offset)} holds {told_line(line)} after {told_line(before)}"
                )
            else:
                highest[line.name] = line
    return breaches


def named_aborted(facts: Facts) -> list[str]:
    """Find lines that were read as committed although their transaction was aborted, or had not been asked to
    commit.
    """
    breaches = []
    for event in facts.all(Fetched):
        if not event.read_committed:
            continue
        for offset, line in lines_of(facts, event):
            if not line.transaction:
                continue
            transaction = facts.transactions.get(transaction_of(line))
            asked_at_ms = transaction.commit_asked_at_ms if transaction else NEVER
            if event.at_ms < asked_at_ms or (transaction is not None and transaction.end is False):
                breaches.append(
                    f"{event.at_ms} ms: {event.consumer} got {told_line(line)} of "
                    f"{place(event.partition, offset)} as committed, and it was not"
                )
    return breaches
