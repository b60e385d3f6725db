"""StreamsGroupHeartbeat and StreamsGroupDescribe (KIP-1071): members join, release and receive tasks, leave,
and return.
"""

from __future__ import annotations

from tests.compat.differential.peer import Peer
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.compat.differential.scenarios.consumer_groups import assignable_topic
from tests.compat.differential.streams_member import (
    LEAVES,
    LEAVES_FOR_A_WHILE,
    StreamsMember,
    alone,
    beside,
    configure,
    describe,
    describe_nodes,
    internal,
    stateless,
    subtopology,
    topology,
    two,
)
from tests.support.wire import Plain

# --- the life of a group


@scenario
def life(peer: Peer) -> None:
    _, member = stateless(peer, partitions=3)
    describe(peer, member.group_id)
    member.join()
    describe(peer, member.group_id, operations=True)
    member.confirm()
    member.beat()
    member.beat(**member.full(topology=None))
    describe(peer, member.group_id)
    member.leave()
    describe(peer, member.group_id)
    member.beat()
    peer.call("list_groups", 5, only_own=True)
    peer.call("delete_groups", 2, groups_names=[member.group_id])
    describe(peer, member.group_id)


@scenario
def two_members_share(peer: Peer) -> None:
    """Give the second member a task only after the first has released it."""
    _, first = alone(peer)
    second = beside(first)
    second.join()
    describe(peer, first.group_id)
    second.beat()
    first.beat()
    describe(peer, first.group_id)
    second.beat()
    first.beat()
    first.confirm()
    second.beat()
    second.confirm()
    describe(peer, first.group_id)
    first.leave()
    describe(peer, first.group_id)
    second.beat()
    second.confirm()
    second.leave()
    describe(peer, first.group_id)


@scenario_for_each({"of one process": "p2", "of another process": "p1"})
def three_members(peer: Peer, process_id: str) -> None:
    """Names of processes of which Kafka's hash map has the lesser one first, as Seqgate does."""
    _, first = alone(peer, partitions=5, process_id="p2")
    members = [first, beside(first, "m2", process_id), beside(first, "m3", "p3")]
    for member in members[1:]:
        member.join()
    for _ in range(3):
        for member in members:
            member.confirm()
    describe(peer, first.group_id)
    members[1].leave()
    for _ in range(2):
        for member in (first, members[2]):
            member.confirm()
    describe(peer, first.group_id)


@scenario_for_each({"one": 1, "two": 2})
def standby_tasks(peer: Peer, replicas: int) -> None:
    """Members of two processes stand by for each other's tasks."""
    topic = assignable_topic(peer, partitions=2)
    group_id = peer.group()
    configure(peer, group_id, num_standby_replicas=str(replicas))
    changelogs = [internal(f"{group_id}-store-changelog")]
    stateful = topology(subtopology("0", topic.name, changelogs=changelogs))
    first = StreamsMember(peer, group_id, stateful)
    first.await_tasks(2, **first.full())
    first.confirm()
    describe(peer, group_id)
    second = beside(first)
    second.join()
    for _ in range(3):
        first.confirm()
        second.confirm()
    describe(peer, group_id)
    first.leave()
    second.confirm()
    second.confirm()
    describe(peer, group_id)


@scenario
def replicas_change_while_members_run(peer: Peer) -> None:
    topic = assignable_topic(peer, partitions=2)
    group_id = peer.group()
    changelogs = [internal(f"{group_id}-store-changelog")]
    first = StreamsMember(peer, group_id, topology(subtopology("0", topic.name, changelogs=changelogs)))
    first.await_tasks(2, **first.full())
    second = beside(first)
    second.join()
    for _ in range(2):
        first.confirm()
        second.confirm()
    configure(peer, group_id, num_standby_replicas="1")
    first.await_tasks(1, 1)
    first.confirm()
    second.await_tasks(1, 1)
    second.confirm()
    describe(peer, group_id)


# --- requests that are refused


@scenario
def unknown_group(peer: Peer) -> None:
    _, member = stateless(peer, partitions=1)
    for member_epoch in (1, LEAVES, LEAVES_FOR_A_WHILE):
        member.beat(member_epoch=member_epoch)
        member.beat(member_epoch=member_epoch, instance_id="i")
    describe(peer, member.group_id)
    describe(peer, "")
    describe(peer, "", member.group_id, member.group_id)


@scenario
def unknown_member(peer: Peer) -> None:
    _, member = alone(peer, partitions=1)
    other = beside(member)
    for member_epoch in (1, LEAVES, LEAVES_FOR_A_WHILE):
        other.beat(member_epoch=member_epoch)
        other.beat(member_epoch=member_epoch, instance_id="i")
    describe(peer, member.group_id)


TASKS = [{"subtopology_id": "0", "partitions": [0]}]


@scenario_for_each(
    {
        "group id": {"group_id": ""},
        "blank group id": {"group_id": "  "},
        "member id": {"member_id": ""},
        "blank member id": {"member_id": " "},
        "member id of 37 characters": {"member_id": "m" * 37},
        "instance id": {"instance_id": ""},
        "rack id": {"rack_id": ""},
        "process id": {"process_id": ""},
        "no process id": {"process_id": None},
        "epoch -3": {"member_epoch": -3},
        "no rebalance timeout": {"rebalance_timeout": -1},
        "rebalance timeout 0": {"rebalance_timeout": 0},
        "no topology": {"topology": None},
        "no active tasks": {"active_tasks": None},
        "no standby tasks": {"standby_tasks": None},
        "no warm-up tasks": {"warmup_tasks": None},
        "no client tags": {"client_tags": None},
        "active tasks": {"active_tasks": TASKS},
        "standby tasks": {"standby_tasks": TASKS},
        "warm-up tasks": {"warmup_tasks": TASKS},
        "all tasks": {"active_tasks": [], "standby_tasks": [], "warmup_tasks": TASKS},
        "task offsets": {"task_offsets": [{"subtopology_id": "0", "partition": 0, "offset": 7}]},
        "endpoint without a host": {"user_endpoint": {"host": "", "port": 1}},
        "endpoint without a port": {"user_endpoint": {"host": "h", "port": 0}},
        "tags twice": {"client_tags": [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]},
        "empty tag": {"client_tags": [{"key": "", "value": ""}]},
        "shutdown": {"shutdown_application": True},
    }
)
def join_with(peer: Peer, more: Plain) -> None:
    _, member = stateless(peer, partitions=1)
    member.join(**more)
    describe(peer, member.group_id)


@scenario_for_each(
    {
        "topology": {"topology": topology(subtopology("0", "t"))},
        "unknown tasks": {"active_tasks": [{"subtopology_id": "9", "partitions": [0, 1]}]},
        "tasks twice": {"active_tasks": TASKS * 2},
        "task in two roles": {"active_tasks": TASKS, "standby_tasks": TASKS, "warmup_tasks": []},
        "active tasks only": {"active_tasks": TASKS},
        "standby tasks only": {"standby_tasks": []},
        "instance id": {"instance_id": "i"},
        "rack id": {"rack_id": "r"},
        "rebalance timeout 0": {"rebalance_timeout": 0},
        "rebalance timeout": {"rebalance_timeout": 5_000},
        "process id": {"process_id": "p7"},
        "empty process id": {"process_id": ""},
        "client tags": {"client_tags": [{"key": "zone", "value": "a"}]},
        "endpoint": {"user_endpoint": {"host": "h", "port": 7}},
        "task offsets": {"task_offsets": [{"subtopology_id": "0", "partition": 0, "offset": 7}]},
        "offsets of unknown tasks": {"task_offsets": [{"subtopology_id": "9", "partition": 0, "offset": 7}]},
        "end offsets": {"task_end_offsets": [{"subtopology_id": "0", "partition": 0, "offset": 7}]},
    }
)
def heartbeat_with(peer: Peer, more: Plain) -> None:
    _, member = alone(peer, partitions=2)
    member.beat(**more)
    member.beat()
    describe(peer, member.group_id)


@scenario_for_each({"-1": -1, "1": 1, "2": 2, "-3": -4})
def another_epoch(peer: Peer, step: int) -> None:
    """Send epochs ahead of the coordinator's and behind it; behind it also with the tasks."""
    _, member, second = two(peer)
    second.leave()
    member.confirm()
    member.confirm()
    known = member.member_epoch
    member.beat(member_epoch=known + step)
    member.member_epoch = known
    member.confirm(member_epoch=known + step)
    member.member_epoch = known
    member.beat()


@scenario
def leaves_for_a_while_without_an_instance_id(peer: Peer) -> None:
    _, member = alone(peer)
    member.leave(LEAVES_FOR_A_WHILE)
    member.beat()
    describe(peer, member.group_id)


# --- answers that the client lost


@scenario
def lost_answer_to_a_join(peer: Peer) -> None:
    _, member = stateless(peer, partitions=2)
    member.join()
    member.join()
    member.confirm()
    describe(peer, member.group_id)


@scenario
def joins_again_from_nothing(peer: Peer) -> None:
    """Join again with epoch 0 as a member whose epoch is already higher than its first."""
    _, first, second = two(peer)
    first.join()
    first.confirm()
    second.confirm()
    first.confirm()
    describe(peer, first.group_id)


@scenario
def lost_answer_to_a_change(peer: Peer) -> None:
    _, first = alone(peer)
    before = first.member_epoch
    second = beside(first)
    second.join()
    first.beat()
    first.confirm()
    second.beat()
    first.confirm(member_epoch=before)
    first.beat(member_epoch=before)
    first.beat()
    describe(peer, first.group_id)


# --- static members


@scenario
def static_members(peer: Peer) -> None:
    """A static member leaves for a while and returns with another member id, at the same process."""
    _, member = alone(peer, partitions=2)
    static = beside(member, instance_id="i")
    static.join()
    for _ in range(2):
        member.confirm()
        static.confirm()
    describe(peer, member.group_id)
    static.leave(LEAVES_FOR_A_WHILE)
    describe(peer, member.group_id)
    member.confirm()
    again = beside(static, "m3", static.process_id, instance_id="i")
    again.join()
    again.confirm()
    describe(peer, member.group_id)
    static.beat(member_epoch=1)
    static.leave(LEAVES_FOR_A_WHILE)
    static.leave()
    again.leave()
    member.confirm()
    describe(peer, member.group_id)


@scenario
def static_member_at_another_process(peer: Peer) -> None:
    _, member = alone(peer, partitions=2)
    static = beside(member, instance_id="i")
    static.join()
    for _ in range(2):
        member.confirm()
        static.confirm()
    static.leave(LEAVES_FOR_A_WHILE)
    again = beside(static, "m3", "p3", instance_id="i")
    again.join(client_tags=[{"key": "zone", "value": "a"}])
    for _ in range(2):
        member.confirm()
        again.confirm()
    describe(peer, member.group_id)


@scenario
def instance_ids_in_the_way(peer: Peer) -> None:
    """Instance ids that are in use, unknown, or another member's."""
    _, member = alone(peer, partitions=2)
    static = beside(member, instance_id="i")
    static.join()
    beside(static, "m3", "p3", instance_id="i").join()
    member.beat(instance_id="i")
    member.beat(instance_id="x")
    member.leave(LEAVES_FOR_A_WHILE)
    member.beat(member_epoch=LEAVES_FOR_A_WHILE, instance_id="x")
    member.beat(member_epoch=LEAVES, instance_id="i")
    static.beat(instance_id=None)
    static.beat(instance_id=None, member_epoch=LEAVES)
    describe(peer, member.group_id)


@scenario
def a_member_becomes_static(peer: Peer) -> None:
    _, member = alone(peer, partitions=2)
    member.join(instance_id="i")
    member.confirm()
    describe(peer, member.group_id)
    member.beat(instance_id="i", member_epoch=LEAVES_FOR_A_WHILE)
    member.join(instance_id="i")
    describe(peer, member.group_id)


# --- client tags


@scenario
def client_tags_that_are_missing(peer: Peer) -> None:
    """A member of version 1 learns which tags it lacks; one of version 0 does not."""
    _, member = stateless(peer, partitions=1)
    configure(peer, member.group_id, rack_aware_assignment_tags="zone,rack")
    member.join(client_tags=[{"key": "zone", "value": "z"}])
    member.version = 1
    member.beat()
    member.beat(client_tags=[{"key": "rack", "value": "r"}])
    member.beat(client_tags=[{"key": "rack", "value": "r"}, {"key": "zone", "value": "z"}])
    describe_nodes(peer, member.group_id, nodes=False)
    configure(peer, member.group_id, rack_aware_assignment_tags="")
    member.beat(client_tags=[])


# --- task offsets


@scenario
def task_offsets(peer: Peer) -> None:
    """A member reports the offsets of its tasks, then drops them, then reports them twice."""
    _, member = alone(peer, partitions=2)
    member.version = 1
    offsets = [{"subtopology_id": "0", "partition": index, "offset": 7 + index} for index in (1, 0)]
    member.beat(task_offsets=offsets, task_end_offsets=offsets[:1])
    describe(peer, member.group_id)
    member.beat(task_offsets=[])
    describe(peer, member.group_id)
    member.beat(task_offsets=offsets * 2)
    describe(peer, member.group_id)


# --- what members say about themselves and to each other


@scenario
def shutdown_of_the_application(peer: Peer) -> None:
    _, first, second = two(peer)
    first.beat(shutdown_application=True)
    first.beat()
    second.beat()
    first.leave()
    second.beat()
    describe(peer, first.group_id)


@scenario
def endpoints(peer: Peer) -> None:
    """Every member learns the endpoints of all when their epoch has changed."""
    _, first = stateless(peer, partitions=2)
    first.await_tasks(2, **first.full(user_endpoint={"host": "first", "port": 1}))
    first.confirm()
    second = beside(first)
    second.join(user_endpoint={"host": "second", "port": 2})
    for _ in range(2):
        first.confirm()
        second.confirm()
    describe(peer, first.group_id)
    first.beat(endpoint_information_epoch=0)
    first.beat()
    first.beat(endpoint_information_epoch=99)
    second.leave()
    first.confirm()
    first.confirm()
    first.beat(endpoint_information_epoch=-1)


@scenario
def process_changes(peer: Peer) -> None:
    _, first, second = two(peer)
    second.beat(process_id="p1")
    for _ in range(2):
        first.confirm()
        second.confirm()
    describe(peer, first.group_id)
