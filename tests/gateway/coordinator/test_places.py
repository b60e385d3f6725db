"""The map whose keys are partitions, each a topic id and an index."""

from __future__ import annotations

import uuid

from seqgate.gateway.coordinator.places import by_topic


def test_partitions_of_each_topic_come_in_order() -> None:
    first, second = uuid.UUID(int=5), uuid.UUID(int=6)
    assert by_topic([(second, 0), (first, 2), (first, 1)]) == {first: [1, 2], second: [0]}


def test_partitions_by_name_are_grouped_in_order() -> None:
    assert by_topic(frozenset({("b", 2), ("a", 9), ("b", 1)})) == {"a": [9], "b": [1, 2]}
