"""FindCoordinator, ListGroups, DescribeGroups, DeleteGroups, and the topic that stores groups."""

from __future__ import annotations

from tests.compat.differential.group_member import (
    GroupMember,
    await_state,
    committed,
    fetch_offsets,
    fetched,
    subscription,
)
from tests.compat.differential.peer import Peer, Topic
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.support.batches import Batch, Record
from tests.support.wire import NO_TOPIC_ID, Plain

OFFSETS_TOPIC = Topic("__consumer_offsets", NO_TOPIC_ID)
OPERATIONS_SINCE = 3


def _simple_group(peer: Peer, suffix: str = "simple") -> tuple[str, Topic]:
    """Return a group that has an offset and no members, and the topic of the offset."""
    topic, group_id = peer.topic(suffix), peer.group(suffix)
    rows = [committed(topic, {0: 5})]
    peer.call(
        "offset_commit",
        9,
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=rows,
    )
    return group_id, topic


def _stable(peer: Peer, suffix: str = "stable") -> GroupMember:
    member = GroupMember(peer, peer.group(suffix))
    member.join()
    member.assign_itself()
    return member


# --- FindCoordinator


@scenario_for_each(range(7))
def find_group_coordinator(peer: Peer, version: int) -> None:
    """Ask for one key, and from v4 on for several at once: one empty, one twice."""
    peer.group()
    one, two = peer.name("one"), peer.name("two")
    peer.call("find_coordinator", version, key=one, key_type=0, coordinator_keys=[one])
    peer.call("find_coordinator", version, key="", key_type=0, coordinator_keys=[""])
    if version >= 4:
        peer.call("find_coordinator", version, key_type=0, coordinator_keys=[two, "", one, two])
        peer.call("find_coordinator", version, key_type=0, coordinator_keys=[])


@scenario_for_each(range(1, 7))
def find_coordinator_of_what(peer: Peer, version: int) -> None:
    """Ask for key types that do not exist, and for share groups before the version that has them."""
    peer.group()
    for key_type in (3, -1, 127):
        peer.call("find_coordinator", version, key="k", key_type=key_type, coordinator_keys=["k", ""])
    if version < 6:
        peer.call("find_coordinator", version, key="k", key_type=2, coordinator_keys=["k", "g:id:0"])


@scenario_for_each(range(1, 7))
def find_transaction_coordinator(peer: Peer, version: int) -> None:
    name = peer.name("txn")
    request: Plain = {"key": name, "key_type": 1, "coordinator_keys": [name, ""]}
    peer.until("find_coordinator", 3, lambda answer: answer["error_code"] != 15, {"key": name, "key_type": 1})
    peer.call("find_coordinator", version, **request)


@scenario
def find_share_coordinator(peer: Peer) -> None:
    """Ask for keys in the form group:topic id:partition, and for others, which are errors."""
    for key in ("", "k", "g:k:0", f"g:{NO_TOPIC_ID}:x", ":::"):
        peer.call("find_coordinator", 6, key_type=2, coordinator_keys=[key])


# --- ListGroups


@scenario_for_each(range(6))
def list_groups(peer: Peer, version: int) -> None:
    _simple_group(peer)
    _stable(peer)
    peer.call("list_groups", version, only_own=True, states_filter=[], types_filter=[])


STATES = {
    "stable": ["Stable"],
    "empty": ["Empty"],
    "other case": ["sTABLE"],
    "two": ["Empty", "Stable"],
    "unknown": ["Sleeping"],
    "known and unknown": ["Empty", "Sleeping"],
    "nothing": [""],
    "dead": ["Dead"],
    "of the consumer protocol": ["Assigning", "Reconciling"],
    "preparing": ["PreparingRebalance", "CompletingRebalance"],
    "spaces": [" Stable "],
}


@scenario_for_each(STATES)
def list_groups_in_states(peer: Peer, states: list[str]) -> None:
    _simple_group(peer)
    _stable(peer)
    member = GroupMember(peer, peer.group("completing"))
    member.join()
    await_state(peer, member.group_id, "CompletingRebalance")
    for version in (4, 5):
        peer.call("list_groups", version, only_own=True, states_filter=states, types_filter=[])


TYPES = {
    "classic": ["classic"],
    "consumer": ["consumer"],
    "other case": ["CLASSIC"],
    "unknown": ["modern"],
    "known and unknown": ["classic", "modern"],
    "nothing": [""],
    "share": ["share"],
    "spaces": [" classic "],
}


@scenario_for_each(TYPES)
def list_groups_of_types(peer: Peer, types: list[str]) -> None:
    _simple_group(peer)
    _stable(peer)
    for states in ([], ["Stable"]):
        peer.call("list_groups", 5, only_own=True, states_filter=states, types_filter=types)


# --- DescribeGroups


@scenario_for_each(range(7))
def describe_groups(peer: Peer, version: int) -> None:
    """Describe groups that do not exist, that have members and have none, one of them twice; ask for the
    authorized operations too."""
    simple, _ = _simple_group(peer)
    stable = _stable(peer)
    gone = _stable(peer, "gone")
    gone.leave()
    await_state(peer, gone.group_id, "Empty")
    asked = [peer.name("nobody"), simple, stable.group_id, gone.group_id]
    for group_id in asked:
        peer.call("describe_groups", version, groups=[group_id])
    peer.call("describe_groups", version, groups=[*asked, simple])
    peer.call("describe_groups", version, groups=[])
    if version >= OPERATIONS_SINCE:
        peer.call("describe_groups", version, groups=asked, include_authorized_operations=True)


@scenario_for_each(range(7))
def describe_states(peer: Peer, version: int) -> None:
    """Describe a group in each state: only a stable group shows its protocol and the members' metadata."""
    member = GroupMember(peer, peer.group(), protocols={"a": subscription("1"), "b": subscription("2")})
    member.join()
    await_state(peer, member.group_id, "CompletingRebalance")
    peer.call("describe_groups", version, groups=[member.group_id])
    member.assign_itself()
    member.sync(protocol_name="a")
    peer.call("describe_groups", version, groups=[member.group_id])
    member.sync({member.member_id: b"assigned"}, protocol_name="a")
    peer.call("describe_groups", version, groups=[member.group_id])
    member.leave()
    peer.call("describe_groups", version, groups=[member.group_id])


@scenario
def describe_static_members(peer: Peer) -> None:
    member = GroupMember(peer, peer.group(), "i")
    member.join()
    member.assign_itself()
    for version in range(7):
        peer.call("describe_groups", version, groups=[member.group_id])


# --- DeleteGroups


@scenario_for_each(range(4))
def delete_groups(peer: Peer, version: int) -> None:
    simple, topic = _simple_group(peer)
    stable = _stable(peer)
    peer.call("delete_groups", version, groups_names=[simple])
    fetch_offsets(peer, simple, [fetched(topic, 0)])
    peer.call("describe_groups", 6, groups=[simple])
    peer.call("delete_groups", version, groups_names=[simple])
    peer.call("delete_groups", version, groups_names=[stable.group_id])
    stable.heartbeat()
    stable.commit(topic)
    stable.leave()
    peer.call("delete_groups", version, groups_names=[stable.group_id])
    fetch_offsets(peer, stable.group_id, None)
    stable.join()
    peer.call("list_groups", 4, only_own=True, states_filter=[])


@scenario_for_each(range(3))
def delete_several_groups(peer: Peer, version: int) -> None:
    simple, _ = _simple_group(peer)
    stable = _stable(peer)
    nobody = peer.name("nobody")
    peer.call("delete_groups", version, groups_names=[stable.group_id, nobody, "", simple])
    peer.call("delete_groups", version, groups_names=[])
    again, _ = _simple_group(peer, "again")
    peer.call("delete_groups", version, groups_names=[again, nobody, again])
    peer.call("describe_groups", 6, groups=[again])


@scenario
def delete_a_group_in_every_state(peer: Peer) -> None:
    member = GroupMember(peer, peer.group())
    member.ask_for_id()
    peer.call("delete_groups", 2, groups_names=[member.group_id])
    member.join()
    member.member_id = ""
    member.join()
    peer.call("delete_groups", 2, groups_names=[member.group_id])
    member.assign_itself()
    other = GroupMember(peer.connect(), member.group_id)
    pending = other.begin_join()
    member.await_rebalance()
    peer.call("delete_groups", 2, groups_names=[member.group_id])
    member.leave()
    pending.answer()


# --- the topic that stores groups


@scenario_for_each(range(2, 8))
def create_the_offsets_topic(peer: Peer, version: int) -> None:
    peer.group()
    for validate_only in (True, False):
        wanted = {"name": OFFSETS_TOPIC.name, "num_partitions": 1, "replication_factor": 1, "configs": []}
        peer.call("create_topics", version, topics=[wanted], timeout=5_000, validate_only=validate_only)


@scenario_for_each((3, 9, 12))
def produce_to_the_offsets_topic(peer: Peer, version: int) -> None:
    peer.group()
    peer.produce(OFFSETS_TOPIC, Batch((Record(key=b"k", value=b"v"),)), version=version)


@scenario_for_each((1, 4, 9, 12, 13))
def metadata_of_the_offsets_topic(peer: Peer, version: int) -> None:
    peer.group()
    answer = peer.wire.call("metadata", version, topics=[{"name": OFFSETS_TOPIC.name}]).fields
    topic = answer["topics"][0]
    peer.note("internal", is_internal=topic["is_internal"], error_code=topic["error_code"])


@scenario
def other_changes_of_the_offsets_topic(peer: Peer) -> None:
    """Change the topic of offsets as an administrator. This is allowed; the scenario sends only changes
    without effect."""
    peer.group()
    counted = {"name": OFFSETS_TOPIC.name, "count": 0, "assignments": None}
    peer.call("create_partitions", 3, topics=[counted], timeout=5_000, validate_only=True)
    trimmed = {"name": OFFSETS_TOPIC.name, "partitions": [{"partition_index": 0, "offset": 0}]}
    peer.call("delete_records", 2, topics=[trimmed], timeout=5_000)
