from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from seqgate.gateway.handlers.admin.alter_partition_reassignments import reassign
from seqgate.gateway.handlers.admin.brokers import drain_broker
from seqgate.gateway.metadata.decision import ApiError, Decision
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.leadership import (
    PartitionMove,
    candidates,
    has_adding_or_removing_replicas,
    move,
    order_move,
    planned_moves,
    reassigned_replicas,
    stay_all,
)
from seqgate.gateway.metadata.membership import end_session, register_broker
from seqgate.gateway.metadata.records import BrokerRegistrationChangeRecord, PartitionRecord
from tests.gateway.metadata.clusters import broker, carry_out, cluster

NAME = "t1"


def partition(image: MetadataImage, index: int = 0) -> PartitionRecord:
    return image.topics_by_name[NAME].partitions[index]


def planned(image: MetadataImage, to: int, index: int = 0) -> PartitionMove:
    led = partition(image, index)
    return PartitionMove(led.topic_id, index, led.leader, led.leader_epoch, led.partition_epoch, to)


def moved(image: MetadataImage, to: int, index: int = 0) -> bool:
    return carry_out(image, move(image, planned(image, to, index)))


def code(answer: ApiError | None) -> ErrorCode:
    return ErrorCode.none if answer is None else answer.error_code


def test_only_the_present_leader_in_its_epoch_moves_a_partition() -> None:
    image = cluster([1, 2], [1])
    leader = partition(image).leader
    other = 3 - leader
    right = planned(image, other)
    for wrong in (
        right._replace(leader=other, to=leader),
        right._replace(leader_epoch=1),
        right._replace(to=7),
        right._replace(to=leader),
        right._replace(partition=5),
    ):
        assert move(image, wrong) == Decision((), False)
    assert carry_out(image, move(image, right))
    assert (partition(image).leader, partition(image).leader_epoch) == (other, 1)
    assert partition(image).replicas == (other,)


def test_an_order_that_was_taken_back_or_replaced_is_not_carried_out() -> None:
    image = cluster([1, 2, 3], [1], 1)
    leader = partition(image).leader
    first, second = (node for node in (1, 2, 3) if node != leader)
    carry_out(image, reassign(image, NAME, 0, [first], 1))
    ordered = planned(image, first)
    carry_out(image, reassign(image, NAME, 0, None, 1))
    assert move(image, ordered) == Decision((), False)
    carry_out(image, reassign(image, NAME, 0, [first], 1))
    ordered = planned(image, first)
    carry_out(image, reassign(image, NAME, 0, [second], 1))
    assert move(image, ordered) == Decision((), False)
    assert (partition(image).leader, partition(image).next_leader) == (leader, second)


def test_after_a_move_whose_outcome_is_unknown_the_leader_stays_or_the_answer_tells() -> None:
    image = cluster([1, 2], [1])
    topic_id = image.topics_by_name[NAME].topic_id
    leader = partition(image).leader
    assert carry_out(image, order_move(image, topic_id, 0, 3 - leader)) is None
    moves = [planned(image, 3 - leader)]
    before = partition(image)
    assert carry_out(image, stay_all(image, moves)) == [False]
    assert partition(image) == replace(before, partition_epoch=before.partition_epoch + 1)
    assert moved(image, 3 - leader)
    present = stay_all(image, moves)
    assert (present.records, present.answer) == ([], [True])


def test_a_moved_partition_prefers_its_new_leader() -> None:
    image = cluster([1, 2, 3, 4], [1], 3)
    replicas = partition(image).replicas
    outside = next(node for node in (1, 2, 3, 4) if node not in replicas)
    assert moved(image, outside)
    assert partition(image).replicas == (outside, *replicas[:2])
    assert moved(image, replicas[1])
    assert partition(image).replicas == (replicas[1], outside, replicas[0])


def test_a_reassignment_to_replicas_with_the_leader_is_complete_at_once() -> None:
    image = cluster([1, 2, 3], [1], 2)
    leader = partition(image).leader
    other = next(node for node in (1, 2, 3) if node not in partition(image).replicas)
    assert code(carry_out(image, reassign(image, NAME, 0, [other, leader], 1))) is ErrorCode.none
    assert partition(image).replicas == (other, leader)
    assert (partition(image).leader, partition(image).leader_epoch) == (leader, 0)
    assert not has_adding_or_removing_replicas(partition(image))


def test_a_reassignment_without_the_leader_lasts_until_the_leader_hands_over() -> None:
    image = cluster([1, 2, 3], [1], 2)
    before = partition(image).replicas
    other = next(node for node in (1, 2, 3) if node not in before)
    assert code(carry_out(image, reassign(image, NAME, 0, [other], 1))) is ErrorCode.none
    assert has_adding_or_removing_replicas(partition(image))
    assert partition(image).adding_replicas == (other,)
    assert partition(image).removing_replicas == before
    assert partition(image).next_leader == other
    assert reassigned_replicas(partition(image)) == (other,)
    assert reassign(image, NAME, 0, [other], 1).records == (), "deciding again changes nothing"
    refused = reassign(image, NAME, 0, [other, *before], 1, keeps_count=True)
    assert (refused.records, code(refused.answer)) == ((), ErrorCode.invalid_replication_factor)
    assert reassign(image, NAME, 0, [other], 1, keeps_count=True).answer is None
    assert moved(image, other)
    assert partition(image).replicas == (other,)
    assert not has_adding_or_removing_replicas(partition(image))
    assert partition(image).next_leader == -1


def test_a_reassignment_names_registered_gateways_of_which_one_is_live() -> None:
    image = cluster([1, 2, 3, 4], [1], 1)
    leader = partition(image).leader
    gone, other, gone_too = (node for node in (1, 2, 3, 4) if node != leader)
    for node in (gone, gone_too):
        carry_out(image, end_session(image, node, image.brokers.by_id[node].broker_epoch))
    none_is_live = reassign(image, NAME, 0, [gone, gone_too], 1)
    assert (none_is_live.records, code(none_is_live.answer)) == ((), ErrorCode.invalid_replica_assignment)
    assert code(carry_out(image, reassign(image, NAME, 0, [gone, other], 1))) is ErrorCode.none
    assert partition(image).next_leader == other
    assert moved(image, other)
    assert (partition(image).replicas, partition(image).isr) == ((gone, other), (other,))
    assert code(carry_out(image, reassign(image, NAME, 0, [other, gone_too], 1))) is ErrorCode.none
    assert (partition(image).replicas, partition(image).isr) == ((other, gone_too), (other,))


def test_a_reassignment_is_cancelled() -> None:
    image = cluster([1, 2, 3], [1], 2)
    before = partition(image).replicas
    other = next(node for node in (1, 2, 3) if node not in before)
    assert code(carry_out(image, reassign(image, NAME, 0, None, 1))) is ErrorCode.no_reassignment_in_progress
    carry_out(image, reassign(image, NAME, 0, [other], 1))
    assert code(carry_out(image, reassign(image, NAME, 0, None, 1))) is ErrorCode.none
    assert partition(image).replicas == before
    assert partition(image).next_leader == -1
    assert not has_adding_or_removing_replicas(partition(image))


def test_a_reassignment_ends_when_its_leader_ends() -> None:
    image = cluster([1, 2, 3], [1], 2)
    before = partition(image).replicas
    other = next(node for node in (1, 2, 3) if node not in before)
    carry_out(image, reassign(image, NAME, 0, [other], 1))
    leader = partition(image).leader
    carry_out(image, end_session(image, leader, image.brokers.by_id[leader].broker_epoch))
    assert partition(image).leader == other
    assert partition(image).replicas == (other,)
    assert not has_adding_or_removing_replicas(partition(image))


def test_an_order_to_a_gateway_that_ends_is_taken_back() -> None:
    image = cluster([1, 2, 3], [1], 1)
    leader = partition(image).leader
    to = next(node for node in (1, 2, 3) if node != leader)
    topic_id = image.topics_by_name[NAME].topic_id
    assert carry_out(image, order_move(image, topic_id, 0, to)) is None
    assert partition(image).next_leader == to
    carry_out(image, end_session(image, to, image.brokers.by_id[to].broker_epoch))
    assert partition(image).next_leader == -1
    assert partition(image).leader == leader


def test_a_reassignment_makes_no_drained_gateway_the_leader() -> None:
    image = cluster([1, 2, 3], [1], 1)
    leader = partition(image).leader
    drained, other = (node for node in (1, 2, 3) if node != leader)
    carry_out(image, drain_broker(image, drained))
    refused = reassign(image, NAME, 0, [drained], 1)
    assert (refused.records, code(refused.answer)) == ((), ErrorCode.invalid_replica_assignment)
    assert code(carry_out(image, reassign(image, NAME, 0, [drained, other], 1))) is ErrorCode.none
    assert partition(image).next_leader == other
    assert code(carry_out(image, reassign(image, NAME, 0, [drained, leader], 1))) is ErrorCode.none
    assert (partition(image).next_leader, partition(image).replicas) == (-1, (drained, leader))


def test_an_order_to_a_gateway_that_is_drained_afterwards_goes_elsewhere_or_ends() -> None:
    image = cluster([1, 2, 3], [1], 1)
    leader = partition(image).leader
    to, other = (node for node in (1, 2, 3) if node != leader)
    carry_out(image, reassign(image, NAME, 0, [to, other], 1))
    carry_out(image, drain_broker(image, to))
    assert partition(image).next_leader == other
    carry_out(image, end_session(image, other, image.brokers.by_id[other].broker_epoch))
    assert (partition(image).leader, partition(image).next_leader) == (leader, -1)
    assert not has_adding_or_removing_replicas(partition(image))


def test_an_order_that_an_earlier_release_left_to_a_drained_gateway_is_not_followed() -> None:
    image = cluster([1, 2, 3], [1], 1)
    leader = partition(image).leader
    to, other = (node for node in (1, 2, 3) if node != leader)
    carry_out(image, order_move(image, partition(image).topic_id, 0, to))
    epoch = image.brokers.by_id[to].broker_epoch
    image.replay(BrokerRegistrationChangeRecord(to, epoch, in_controlled_shutdown=1))
    assert partition(image).next_leader == to
    assert planned_moves(image, leader) == []
    assert not moved(image, to)
    carry_out(image, end_session(image, leader, image.brokers.by_id[leader].broker_epoch))
    assert partition(image).leader == other


def test_an_order_to_the_leader_ends_other_orders_and_makes_it_preferred() -> None:
    image = cluster([1, 2, 3], [1], 2)
    topic_id = image.topics_by_name[NAME].topic_id
    leader, follower = before = partition(image).replicas
    assert order_move(image, topic_id, 0, leader) == Decision((), None), "it is preferred already"
    carry_out(image, order_move(image, topic_id, 0, follower))
    carry_out(image, order_move(image, topic_id, 0, leader))
    assert (partition(image).next_leader, partition(image).replicas) == (-1, before)
    carry_out(image, reassign(image, NAME, 0, [6 - leader - follower], 1))
    carry_out(image, order_move(image, topic_id, 0, leader))
    assert (partition(image).next_leader, partition(image).replicas) == (-1, before)
    assert not has_adding_or_removing_replicas(partition(image))
    carry_out(image, end_session(image, leader, image.brokers.by_id[leader].broker_epoch))
    assert (partition(image).leader, partition(image).replicas) == (follower, before)
    carry_out(image, order_move(image, topic_id, 0, follower))
    assert partition(image).replicas == (follower, leader)


def test_an_order_to_a_gateway_that_is_not_live_is_refused() -> None:
    image = cluster([1, 2], [1])
    refused = order_move(image, image.topics_by_name[NAME].topic_id, 0, 7)
    assert (refused.records, code(refused.answer)) == ((), ErrorCode.preferred_leader_not_available)


def test_an_unknown_partition_is_refused() -> None:
    image = cluster([1, 2], [1])
    topic_id = image.topics_by_name[NAME].topic_id
    assert code(order_move(image, topic_id, 4, 1).answer) is ErrorCode.unknown_topic_or_partition
    assert code(reassign(image, NAME, 4, [1], 1).answer) is ErrorCode.unknown_topic_or_partition
    assert code(reassign(image, "no", 0, [1], 1).answer) is ErrorCode.unknown_topic_or_partition
    assert code(reassign(image, NAME, 0, [1, 1], 1).answer) is ErrorCode.invalid_replica_assignment


@given(st.data())
def test_epochs_only_grow_and_the_leader_is_always_a_replica_that_may_lead(data: st.DataObject) -> None:
    image = cluster([1, 2, 3, 4], [3], 2)
    topic_id = image.topics_by_name[NAME].topic_id
    session = 10
    for _ in range(data.draw(st.integers(1, 12))):
        index = data.draw(st.integers(0, 2))
        node = data.draw(st.integers(1, 4))
        before = [
            (p.leader_epoch, p.partition_epoch, p.leader)
            for p in image.topics_by_name[NAME].partitions.values()
        ]
        what = data.draw(st.sampled_from(["move", "order", "reassign", "cancel", "drain", "end", "join"]))
        if what == "move":
            moved(image, node, index)
        elif what == "order":
            carry_out(image, order_move(image, topic_id, index, node))
        elif what == "reassign":
            targets = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3, unique=True))
            carry_out(image, reassign(image, NAME, index, targets, 1))
        elif what == "cancel":
            carry_out(image, reassign(image, NAME, index, None, 1))
        elif what == "drain":
            carry_out(image, drain_broker(image, node))
        elif what == "end":
            epoch = image.brokers.by_id[node].broker_epoch
            carry_out(image, end_session(image, node, epoch))
        else:
            session += 1
            carry_out(image, register_broker(image, broker(node, session)))
        after = image.topics_by_name[NAME].partitions.values()
        live = image.brokers.live(0)
        may_lead = candidates(live, image.brokers.draining())
        assert {made.to for broker_id in live for made in planned_moves(image, broker_id)} <= set(may_lead)
        for (leader_epoch, partition_epoch, leader), now in zip(before, after, strict=True):
            assert now.leader_epoch == leader_epoch + (now.leader != leader)
            assert partition_epoch <= now.partition_epoch <= partition_epoch + 2
            assert now.leader in now.replicas
            assert len(set(now.replicas)) == len(now.replicas)
            if live:
                assert now.leader in live
                assert now.leader == leader or now.leader in may_lead
