"""The tables of `seqgate topics`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.admin.printing import Column, count, counted, print_lines, print_table, shown
from gateway.admin.topics.messages import PartitionRow, TopicDescription, TopicOutcome, TopicRow

NONE: Final = "-"


def print_topics(rows: Sequence[TopicRow]) -> None:
    """Print a line for each topic."""
    print_table(
        (
            Column("topic"),
            Column("partitions", number=True),
            Column("replicas", number=True),
            Column("topic id"),
        ),
        [
            (shown(row.topic), count(row.partitions), str(row.replication_factor), row.topic_id)
            for row in rows
        ],
    )
    print_lines(f"{counted(len(rows), 'topic')}.")


def print_descriptions(topics: Sequence[TopicDescription]) -> None:
    """Print each topic with its configurations and a line for each partition."""
    for number, topic in enumerate(topics):
        if number:
            print_lines("")
        set_here = ", ".join(f"{name}={shown(value or '')}" for name, value in topic.configs.items())
        print_lines(
            f"Topic {shown(topic.topic)} ({topic.topic_id}): {counted(len(topic.partitions), 'partition')}, "
            f"{counted(_records(topic), 'offset')} in use.",
            f"Set on the topic: {set_here or 'nothing'}.",
            "",
        )
        _print_partitions(topic.partitions)


def _records(topic: TopicDescription) -> int:
    return sum((row.log_end_offset or 0) - (row.log_start_offset or 0) for row in topic.partitions)


def _print_partitions(rows: Sequence[PartitionRow]) -> None:
    print_table(
        (
            Column("partition", number=True),
            Column("leader", number=True),
            Column("replicas"),
            Column("in sync"),
            Column("log start", number=True),
            Column("log end", number=True),
        ),
        [
            (
                str(row.partition),
                _known(row.leader),
                ",".join(map(str, row.replicas)) or NONE,
                ",".join(map(str, row.in_sync_replicas)) or NONE,
                _known(row.log_start_offset),
                _known(row.log_end_offset),
            )
            for row in rows
        ],
    )


def print_sizes(topics: Sequence[TopicDescription]) -> None:
    """Print the topics that a deletion would remove, with their sizes."""
    print_table(
        (Column("topic"), Column("partitions", number=True), Column("offsets in use", number=True)),
        [(shown(topic.topic), count(len(topic.partitions)), count(_records(topic))) for topic in topics],
    )


def print_outcomes(outcomes: Sequence[TopicOutcome]) -> None:
    """Print a sentence for each topic that the cluster did not refuse."""
    for outcome in outcomes:
        if outcome.error is None:
            partitions = (
                "" if outcome.partitions is None else f" ({counted(outcome.partitions, 'partition')})"
            )
            print_lines(f"Topic {shown(outcome.topic)}: {outcome.outcome}{partitions}.")


def _known(number: int | None) -> str:
    return NONE if number is None else str(number)
