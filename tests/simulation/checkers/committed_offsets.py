"""Checks that a group's committed offset is the last committed one: it is neither lost nor set back.

An offset is a register. A value that is read must come from a commit that had been requested. No other commit
that began after that one had surely happened may have happened before the read was requested. A commit has
surely happened when it was answered, when its value was read, or when the records of its transaction were
read as committed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tests.simulation.checkers.facts import NEVER, Facts, TransactionName, place
from tests.simulation.history import OffsetsCommitted, OffsetsCommitting, OffsetsFetched, TopicPartition

Cell = tuple[str, TopicPartition]


@dataclass
class _Commit:
    """One commit of an offset: if it happens, it does so between `asked_at_ms` and `done_at_ms`."""

    offset: int
    asked_at_ms: float
    done_at_ms: float
    happened: bool
    transaction: TransactionName | None = None


def committed_offsets(facts: Facts) -> list[str]:
    """Find committed offsets that were lost, that went back, or that nobody committed."""
    commits = _commits(facts)
    breaches = []
    for event in facts.all(OffsetsFetched):
        for partition, offset in event.offsets:
            of_cell = commits[event.group, partition]
            candidates = [
                commit for commit in of_cell if commit.offset == offset and commit.asked_at_ms <= event.at_ms
            ]
            if not any(_may_be_latest(commit, of_cell, event.asked_at_ms) for commit in candidates):
                latest = max(
                    (
                        commit
                        for commit in of_cell
                        if commit.happened and commit.done_at_ms < event.asked_at_ms
                    ),
                    key=lambda commit: commit.asked_at_ms,
                )
                breaches.append(
                    f"{event.at_ms} ms: group {event.group} has offset {offset} committed for "
                    f"{place(partition)}, "
                    + (
                        f"and {latest.offset} was committed by {latest.done_at_ms} ms"
                        if candidates or offset < 0
                        else "which nobody asked for"
                    )
                )
            elif len(candidates) == 1:
                candidates[0].happened = True
                candidates[0].done_at_ms = min(candidates[0].done_at_ms, event.at_ms)
    return breaches + _check_transactions(facts, commits)


def _may_be_latest(commit: _Commit, of_cell: list[_Commit], read_asked_at_ms: float) -> bool:
    return not any(
        later.happened and later.asked_at_ms > commit.done_at_ms and later.done_at_ms < read_asked_at_ms
        for later in of_cell
    )


def _commits(facts: Facts) -> dict[Cell, list[_Commit]]:
    """Return all commits of each group and partition, after an initial commit of -1."""
    commits: dict[Cell, list[_Commit]] = defaultdict(lambda: [_Commit(-1, -1, -1, happened=True)])
    for cell, commit in [*_plain(facts), *_transactional(facts)]:
        commits[cell].append(commit)
    return commits


def _plain(facts: Facts) -> Iterator[tuple[Cell, _Commit]]:
    answered = {
        (event.group, event.member, event.asked_at_ms, event.offsets): event.at_ms
        for event in facts.all(OffsetsCommitted)
    }
    for event in facts.all(OffsetsCommitting):
        at_ms = answered.get((event.group, event.member, event.at_ms, event.offsets))
        done_at_ms = facts.next_crash_ms(event.at_ms) if at_ms is None else at_ms
        for partition, offset in event.offsets:
            yield (
                (event.group, partition),
                _Commit(offset, event.at_ms, done_at_ms, happened=at_ms is not None),
            )


def _transactional(facts: Facts) -> Iterator[tuple[Cell, _Commit]]:
    for name, transaction in facts.transactions.items():
        if transaction.end is False:
            continue
        seen_at_ms = facts.first_visible_ms.get(name, NEVER)
        done_at_ms = min(transaction.ends[0].at_ms if transaction.ends else NEVER, seen_at_ms)
        for cell, offset in transaction.offsets.items():
            yield (
                cell,
                _Commit(
                    offset,
                    transaction.commit_asked_at_ms,
                    done_at_ms,
                    happened=done_at_ms != NEVER,
                    transaction=name,
                ),
            )


def _check_transactions(facts: Facts, commits: dict[Cell, list[_Commit]]) -> list[str]:
    """Find transactions whose offsets were seen and whose records are missing."""
    breaches = []
    for (group, partition), of_cell in commits.items():
        for commit in of_cell:
            name = commit.transaction
            if name is None or not commit.happened or name in facts.first_visible_ms:
                continue
            stored = [event for event in facts.acknowledged_in.get(name, ()) if event.name in facts.stored]
            if stored:
                breaches.append(
                    f"group {group} has offset {commit.offset} of {name} for {place(partition)}, "
                    f"and none of its {len(stored)} records is read as committed"
                )
    return breaches
