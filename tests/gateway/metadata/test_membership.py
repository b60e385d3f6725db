from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.admin.brokers import drain_broker, unregister_broker
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.membership import (
    ENDED_IDS_KEPT,
    NOT_REGISTERED,
    choose_node_id,
    end_session,
    free_node_id,
    register_broker,
)
from seqgate.gateway.metadata.records import PartitionRecord
from tests.gateway.metadata.clusters import add_topic, broker, carry_out, cluster, leaders
from tests.support.steps import steps_of

node_ids = st.lists(st.integers(1, 9), min_size=2, max_size=6, unique=True)
topic_sizes = st.lists(st.integers(1, 12), min_size=1, max_size=5)


@given(node_ids, topic_sizes, st.integers(1, 3), st.data())
def test_after_an_end_every_partition_has_a_live_leader_and_the_others_did_not_move(
    nodes: list[int], sizes: list[int], replication_factor: int, data: st.DataObject
) -> None:
    image = cluster(nodes, sizes, replication_factor)
    epoch = len(nodes)
    for _ in range(data.draw(st.integers(1, 8))):
        before = leaders(image)
        epochs = {
            (topic.name, index): (partition.leader_epoch, partition.partition_epoch)
            for topic in image.topics_by_id.values()
            for index, partition in topic.partitions.items()
        }
        node = data.draw(st.sampled_from(nodes))
        was_live = node in image.brokers.live(0)
        if was_live:
            session = image.brokers.by_id[node].broker_epoch
            assert carry_out(image, end_session(image, node, session))
            assert not carry_out(image, end_session(image, node, session)), "deciding again changes nothing"
        else:
            epoch += 1
            assert carry_out(image, register_broker(image, broker(node, epoch))) is None
            assert register_broker(image, broker(node, epoch)).records == ()
        live = set(image.brokers.live(0))
        for topic in image.topics_by_id.values():
            for index, partition in topic.partitions.items():
                place = topic.name, index
                if live:
                    assert partition.leader in live
                    assert partition.leader in partition.replicas
                if before[place] in live or not live:
                    assert partition.leader == before[place]
                    assert (partition.leader_epoch, partition.partition_epoch) == epochs[place]
                else:
                    assert partition.leader_epoch == epochs[place][0] + 1
                    assert partition.partition_epoch == epochs[place][1] + 1


@given(st.integers(3, 6), topic_sizes)
def test_the_partitions_of_a_gateway_that_ended_are_spread(count: int, sizes: list[int]) -> None:
    image = cluster(range(1, count + 1), sizes)
    carry_out(image, end_session(image, 1, 1))
    for topic in image.topics_by_id.values():
        led = [sum(p.leader == node for p in topic.partitions.values()) for node in range(2, count + 1)]
        assert max(led) - min(led) <= 1


def test_only_the_named_session_is_ended() -> None:
    image = cluster([1, 2], [4])
    carry_out(image, register_broker(image, broker(1, 7)))
    decision = end_session(image, 1, 1)
    assert decision.records == ()
    assert not decision.answer
    assert image.brokers.is_current(1, 7)


def test_a_later_session_of_a_node_keeps_its_partitions() -> None:
    image = cluster([1, 2], [4])
    before = leaders(image)
    decision = register_broker(image, broker(1, 7))
    assert not any(isinstance(record, PartitionRecord) for record in decision.records)
    carry_out(image, decision)
    assert leaders(image) == before
    assert image.brokers.ended == {1: 1}


def test_a_cluster_without_a_live_gateway_keeps_its_leaders_until_one_joins() -> None:
    image = cluster([1, 2], [4])
    carry_out(image, end_session(image, 1, 1))
    carry_out(image, end_session(image, 2, 2))
    assert set(leaders(image).values()) == {2}
    carry_out(image, register_broker(image, broker(3, 3)))
    assert set(leaders(image).values()) == {3}


def test_the_partitions_of_a_gateway_that_served_alone_are_led_by_the_first_that_registers() -> None:
    image = MetadataImage()
    add_topic(image, 1, 4)
    carry_out(image, register_broker(image, broker(5, 1)))
    assert set(leaders(image).values()) == {5}


def test_ended_sessions_are_kept_until_they_are_forgotten() -> None:
    image = cluster([1, 2, 3])
    carry_out(image, end_session(image, 2, 2))
    carry_out(image, register_broker(image, broker(1, 4)))
    carry_out(image, register_broker(image, broker(2, 5)))
    assert image.brokers.ended == {2: 2, 1: 1}
    image.brokers.forget_ended(2)
    assert image.brokers.ended == {2: 2}
    assert carry_out(image, end_session(image, 3, 3))
    assert carry_out(image, unregister_broker(image, 3)) is None
    assert image.brokers.ended == {2: 2, 3: 3}
    assert 3 not in image.brokers.by_id


def test_an_older_release_is_refused_once_all_gateways_have_the_newer_one() -> None:
    image = cluster([])
    carry_out(image, register_broker(image, broker(1, 1, version=3)))
    assert image.brokers.cluster_version == 3
    assert carry_out(image, register_broker(image, broker(2, 2, version=4))) is None
    assert image.brokers.cluster_version == 3
    assert carry_out(image, register_broker(image, broker(3, 3, version=3))) is None
    carry_out(image, end_session(image, 1, 1))
    assert image.brokers.cluster_version == 3
    assert carry_out(image, register_broker(image, broker(3, 4, version=4))) is None
    assert image.brokers.cluster_version == 4
    refusal = carry_out(image, register_broker(image, broker(1, 5, version=3)))
    assert refusal is not None
    assert refusal.error_code is ErrorCode.unsupported_version
    assert "uses version 4" in str(refusal.message)
    assert 1 not in image.brokers.live(0)


def test_two_gateways_that_want_the_same_free_id_get_different_ones() -> None:
    image = cluster([1])
    chosen, replaces = free_node_id(image)
    assert (chosen, replaces) == (2, NOT_REGISTERED)
    assert carry_out(image, register_broker(image, broker(2, 5), replaces=replaces)) is None
    refusal = carry_out(image, register_broker(image, broker(2, 6), replaces=replaces))
    assert refusal is not None
    assert refusal.error_code is ErrorCode.duplicate_broker_registration
    assert free_node_id(image) == (3, NOT_REGISTERED)


def test_the_id_of_a_gateway_that_ended_is_free_at_its_address_only() -> None:
    image = cluster([1, 2])
    carry_out(image, end_session(image, 1, 1))
    assert free_node_id(image, addresses={("host-1.example", 9092)}) == (1, 1)
    assert free_node_id(image, addresses={("host-2.example", 9092)}) == (3, NOT_REGISTERED)
    assert free_node_id(image, addresses={("host-1.example", 9093)}) == (3, NOT_REGISTERED)
    assert free_node_id(image, (1, 3), {("host-1.example", 9092)}) == (4, NOT_REGISTERED)


def test_gateways_that_lose_their_disks_at_the_same_time_do_not_swap_their_ids() -> None:
    image = cluster([1, 2, 3])
    for node_id in (1, 3):
        carry_out(image, end_session(image, node_id, node_id))
    for node_id, session in ((3, 7), (1, 8)):
        chosen, replaces = free_node_id(image, addresses={(f"host-{node_id}.example", 9092)})
        assert chosen == node_id
        assert carry_out(image, register_broker(image, broker(chosen, session), replaces=replaces)) is None


def test_of_many_ids_that_ended_the_first_one_goes_to_a_new_address() -> None:
    kept = range(1, ENDED_IDS_KEPT + 1)
    image = cluster([500, *kept, 501])
    for epoch, node_id in enumerate(kept, start=2):
        carry_out(image, end_session(image, node_id, epoch))
    assert free_node_id(image)[0] == ENDED_IDS_KEPT + 1
    carry_out(image, end_session(image, 500, 1))
    assert free_node_id(image) == (500, 1)


@pytest.mark.parametrize(
    ("kept", "died_here", "expected"),
    [
        (None, (), (3, NOT_REGISTERED)),
        (2, (2,), (2, 2)),  # the gateway crashed, and nobody has noticed yet
        (2, (2, 5), (2, 2)),  # its next start died, too
        (2, (1,), (3, NOT_REGISTERED)),  # another gateway has taken the id
        (4, (3,), (4, 4)),  # it has ended
        (9, (7,), (9, NOT_REGISTERED)),  # it was removed
    ],
)
def test_a_gateway_keeps_its_id_unless_another_one_is_live_under_it(
    kept: int | None, died_here: tuple[int, ...], expected: tuple[int, int]
) -> None:
    image = cluster([1, 2])
    carry_out(image, register_broker(image, broker(4, 4)))
    carry_out(image, end_session(image, 4, 4))
    assert choose_node_id(image, kept=kept, died_here=died_here) == expected


def test_gateways_that_are_about_to_join_keep_their_node_ids() -> None:
    image = cluster([1, 3])
    assert free_node_id(image, starting=(2, 4))[0] == 5
    assert choose_node_id(image, kept=2, starting=(2,))[0] == 4


def test_an_earlier_session_does_not_replace_a_later_one() -> None:
    image = cluster([1])
    carry_out(image, register_broker(image, broker(1, 9)))
    refusal = carry_out(image, register_broker(image, broker(1, 8)))
    assert refusal is not None
    assert refusal.error_code is ErrorCode.stale_broker_epoch


def test_a_drained_gateway_gets_no_new_partitions_until_it_registers_again() -> None:
    image = cluster([1, 2, 3])
    assert carry_out(image, drain_broker(image, 2)) is None
    assert drain_broker(image, 2).records == ()
    assert image.brokers.draining() == [2]
    carry_out(image, register_broker(image, broker(2, 8)))
    assert image.brokers.draining() == []


def three_gateways(partitions: int) -> MetadataImage:
    return cluster([1, 2, 3], [partitions // 2, *[1] * (partitions // 2)], 3)


def test_ten_thousand_partitions_change_hands_in_one_change() -> None:
    count = 10_000
    image = three_gateways(count)
    decision = end_session(image, 1, 1)
    few = three_gateways(count // 10)
    assert steps_of(lambda: end_session(image, 1, 1)) < 12 * steps_of(lambda: end_session(few, 1, 1))
    assert sum(isinstance(record, PartitionRecord) for record in decision.records) > count // 4
    carry_out(image, decision)
    led = [sum(leader == node for leader in leaders(image).values()) for node in (2, 3)]
    assert max(led) - min(led) <= 1 + count // 1000
