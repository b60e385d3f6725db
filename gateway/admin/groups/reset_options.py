"""Parses the options of `seqgate groups reset`. Raises ValueError with a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.admin.groups.messages import ResetTarget, TopicSelection
from gateway.admin.times import timestamp_ms

TARGETS: Final = ("--to-earliest", "--to-latest", "--to-timestamp", "--shift-by", "--to-offset")


def reset_target(
    *, earliest: bool, latest: bool, timestamp: str | None, shift: int | None, offset: int | None
) -> tuple[ResetTarget, int]:
    """Return the one target that is given, with its value."""
    given: list[tuple[ResetTarget, int]] = []
    if earliest:
        given.append(("earliest", 0))
    if latest:
        given.append(("latest", 0))
    if timestamp is not None:
        given.append(("timestamp", timestamp_ms(timestamp)))
    if shift is not None:
        given.append(("shift", shift))
    if offset is not None:
        given.append(("offset", offset))
    if len(given) != 1:
        raise ValueError(f"name exactly one of {', '.join(TARGETS)}")
    return given[0]


def topic_selections(texts: Sequence[str]) -> list[TopicSelection]:
    """Parse `TOPIC`, which means all its partitions, or `TOPIC:0,3`; selections of one topic are joined."""
    wanted: dict[str, list[int] | None] = {}
    for text in texts:
        topic, colon, numbers = text.partition(":")
        if not topic:
            raise ValueError(f"{text!r} has no topic name")
        if not colon:
            wanted[topic] = None
            continue
        partitions = [_partition(text, number) for number in numbers.split(",")]
        known = wanted.setdefault(topic, [])
        if known is not None:
            known.extend(partitions)
    return [TopicSelection(topic, partitions) for topic, partitions in wanted.items()]


def _partition(text: str, number: str) -> int:
    if not (number.isascii() and number.isdigit()):
        raise ValueError(f"{text!r} is not a topic with partitions; write TOPIC:0,3")
    return int(number)
