from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.handlers.admin.brokers import drain_broker, undrain_broker
from seqgate.gateway.metadata import leadership
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.leadership import PartitionMove, move, order_move, planned_moves
from seqgate.gateway.metadata.membership import end_session, register_broker
from tests.gateway.metadata.clusters import broker, carry_out, cluster, leaders
from tests.support.steps import steps_of


def plan(image: MetadataImage, *, is_balanced: bool = True) -> list[PartitionMove]:
    return [
        planned
        for node in image.brokers.live(0)
        for planned in planned_moves(image, node, is_balanced=is_balanced)
    ]


def make(image: MetadataImage, planned: PartitionMove) -> None:
    assert carry_out(image, move(image, planned))


def spread(image: MetadataImage) -> int:
    led = Counter(leaders(image).values())
    counts = [led[node] for node in image.brokers.live(0)]
    return max(counts) - min(counts)


@given(st.integers(1, 5), st.integers(1, 3), st.lists(st.integers(1, 12), min_size=1, max_size=6), st.data())
def test_joins_end_with_leaders_spread_evenly_by_few_moves(
    before: int, joined: int, sizes: list[int], data: st.DataObject
) -> None:
    image = cluster(range(1, before + 1), sizes)
    for node in range(before + 1, before + joined + 1):
        carry_out(image, register_broker(image, broker(node, 50 + node)))
    expected = len(plan(image))
    made = 0
    while planned := plan(image):
        make(image, data.draw(st.sampled_from(planned)))
        made += 1
        assert made <= expected + len(sizes)
    assert spread(image) <= 1
    for topic in image.topics_by_id.values():
        led = Counter(partition.leader for partition in topic.partitions.values())
        counts = [led[node] for node in image.brokers.live(0)]
        assert max(counts) - min(counts) <= 1
        assert all(partition.leader == partition.replicas[0] for partition in topic.partitions.values())
    partitions = sum(sizes)
    share = -(-partitions // (before + joined))
    assert made <= share * joined + len(sizes) * (before + joined)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=6))
def test_an_even_cluster_moves_nothing_within_topics(sizes: list[int]) -> None:
    image = cluster([1, 2, 3], [3 * size for size in sizes], 3)
    assert plan(image) == []


def test_a_gateway_that_comes_back_gets_back_what_it_led() -> None:
    image = cluster([1, 2, 3], [6, 5, 4], 3)
    before = leaders(image)
    carry_out(image, end_session(image, 2, 2))
    carry_out(image, register_broker(image, broker(2, 9)))
    while planned := plan(image):
        make(image, planned[0])
    assert leaders(image) == before or spread(image) <= 1
    assert sum(leaders(image)[place] == 2 for place in before) >= sum(led == 2 for led in before.values()) - 1


def test_a_drained_gateway_hands_everything_over_and_gets_its_share_back() -> None:
    image = cluster([1, 2, 3], [6, 5], 2)
    carry_out(image, drain_broker(image, 2))
    while planned := plan(image, is_balanced=False):
        assert {made.leader for made in planned} == {2}
        make(image, planned[0])
    assert 2 not in leaders(image).values()
    assert plan(image) == [] or all(made.to != 2 for made in plan(image))
    carry_out(image, undrain_broker(image, 2))
    assert plan(image, is_balanced=False) == []
    while planned := plan(image):
        make(image, planned[0])
    assert spread(image) <= 1


def test_an_ordered_move_is_planned_first_and_without_balancing() -> None:
    image = cluster([1, 2, 3], [6, 6], 3)
    topic = image.topics_by_name["t2"]
    leader = topic.partitions[3].leader
    to = next(node for node in (1, 2, 3) if node != leader)
    assert carry_out(image, order_move(image, topic.topic_id, 3, to)) is None
    assert plan(image, is_balanced=False) == [PartitionMove(topic.topic_id, 3, leader, 0, 1, to)]
    assert planned_moves(image, leader)[0] == PartitionMove(topic.topic_id, 3, leader, 0, 1, to)


def test_a_gateway_alone_moves_nothing() -> None:
    image = cluster([1], [6])
    assert plan(image) == []


def with_a_newcomer(partitions: int) -> MetadataImage:
    image = cluster([1, 2], [partitions // 2, *[1] * (partitions // 2)], 2)
    carry_out(image, register_broker(image, broker(3, 9)))
    return image


def test_the_plan_of_ten_times_the_partitions_takes_ten_times_the_steps() -> None:
    few, many = with_a_newcomer(1_000), with_a_newcomer(10_000)
    assert steps_of(lambda: planned_moves(many, 1)) < 12 * steps_of(lambda: planned_moves(few, 1))
    planned = planned_moves(many, 1)
    assert planned
    assert 3 in {made.to for made in planned}


def test_a_drain_counts_the_leaders_of_a_topic_once(monkeypatch: pytest.MonkeyPatch) -> None:
    image = cluster([1, 2, 3], [300])
    carry_out(image, drain_broker(image, 1))
    counted: list[object] = []

    class Counting(Counter[int]):
        def update(self, *iterables: Any, **counts: int) -> None:
            counted.extend(iterables)
            super().update(*iterables, **counts)

    monkeypatch.setattr(leadership, "Counter", Counting)
    planned = planned_moves(image, 1, is_balanced=False)
    assert Counter(made.to for made in planned) == {2: 50, 3: 50}
    assert len(counted) < 10
