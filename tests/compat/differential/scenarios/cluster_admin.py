"""DescribeQuorum, ElectLeaders, reassignments, AlterReplicaLogDirs, UpdateFeatures, UnregisterBroker,
UnregisterController."""

from __future__ import annotations

from typing import Any

from tests.compat.differential.peer import Peer
from tests.compat.differential.scenario import scenario_for_each
from tests.support.wire import Plain

METADATA_TOPIC = "__cluster_metadata"
NOBODY = 98


def _node(peer: Peer) -> int:
    return int(peer.wire.call("metadata", 12, topics=[]).fields["brokers"][0]["node_id"])


def _quorum_of(name: str, *indexes: int) -> Plain:
    return {"topic_name": name, "partitions": [{"partition_index": index} for index in indexes]}


@scenario_for_each(range(3))
def quorum(peer: Peer, version: int) -> None:
    """Compare the fields that do not depend on the number of metadata changes: the leader, the voters and
    their offsets.
    """
    node = _node(peer)
    answer = peer.wire.call("describe_quorum", version, topics=[_quorum_of(METADATA_TOPIC, 0)]).fields
    (topic,) = answer["topics"]
    (partition,) = topic["partitions"]
    (voter,) = partition["current_voters"]
    peer.note(
        "the quorum",
        topic=topic["topic_name"],
        codes=[answer["error_code"], partition["error_code"]],
        messages=[answer.get("error_message"), partition.get("error_message")],
        leads=partition["leader_id"] == node,
        votes=voter["replica_id"] == node,
        end_is_visible=voter["log_end_offset"] == partition["high_watermark"] > 0,
        is_caught_up=voter.get("last_caught_up_timestamp") == voter.get("last_fetch_timestamp"),
        nodes=[entry["node_id"] == node for entry in answer.get("nodes", [])],
        observers=partition["observers"],
    )


@scenario_for_each(range(3))
def quorum_of_other_logs(peer: Peer, version: int) -> None:
    name = peer.topic(partitions=2).name
    for topics in (
        [],
        [_quorum_of(name, 0, 7)],
        [_quorum_of(peer.name("unknown"), 0)],
        [_quorum_of(METADATA_TOPIC)],
        [_quorum_of(METADATA_TOPIC, 1)],
        [_quorum_of(METADATA_TOPIC, 0, 1)],
        [_quorum_of(METADATA_TOPIC, 0, 0)],
        [_quorum_of(METADATA_TOPIC, 0), _quorum_of(name, 0)],
    ):
        peer.call("describe_quorum", version, topics=topics)


def _elect(peer: Peer, *topics: tuple[str, list[int]], version: int = 2, kind: int = 0, **more: Any) -> None:
    asked = [{"topic": name, "partitions": indexes} for name, indexes in topics]
    request = {"election_type": kind, "topic_partitions": asked, "timeout": 5_000, **more}
    peer.call("elect_leaders", version, only_own=True, **request)


@scenario_for_each(range(3))
def elections(peer: Peer, version: int) -> None:
    name = peer.topic(partitions=2).name
    _elect(peer, (name, [0, 1]), version=version)
    _elect(peer, (name, [0, 9, -1]), (peer.name("unknown"), [0]), version=version)
    _elect(peer, version=version, topic_partitions=None)
    _elect(peer, version=version, topic_partitions=None, timeout=0)
    _elect(peer, (name, [0]), version=version, timeout=-1)


@scenario_for_each({str(kind): kind for kind in (0, 1, 2, -1)})
def kinds_of_election(peer: Peer, kind: int) -> None:
    name = peer.topic(partitions=2).name
    _elect(peer, kind=kind)
    _elect(peer, kind=kind, topic_partitions=None)
    for topics in (
        [(name, [0, 0, 1])],
        [(name, [])],
        [("", [0])],
        [(name, [0]), (name, [1])],
        [(peer.name("unknown"), [])],
    ):
        _elect(peer, *topics, kind=kind)


def _reassign(peer: Peer, version: int, *topics: tuple[str, list[tuple[int, Any]]], **more: Any) -> None:
    asked = [
        {
            "name": name,
            "partitions": [{"partition_index": index, "replicas": replicas} for index, replicas in rows],
        }
        for name, rows in topics
    ]
    peer.call("alter_partition_reassignments", version, **{"timeout": 5_000, "topics": asked, **more})


@scenario_for_each(range(2))
def reassignments(peer: Peer, version: int) -> None:
    """Move partitions to this broker, to others, and to none."""
    name, node = peer.topic(partitions=2).name, _node(peer)
    for replicas in ([node], [node, node], [], [NOBODY], [node, NOBODY], [-1], None):
        _reassign(peer, version, (name, [(0, replicas)]))
    other = peer.name("unknown")
    _reassign(
        peer, version, (name, [(9, [node]), (0, [NOBODY]), (1, [node])]), (other, [(0, [node]), (0, None)])
    )
    _reassign(peer, version, (name, [(0, [node]), (0, [NOBODY])]), (name, [(1, [node])]))
    _reassign(peer, version, (name, []))
    _reassign(peer, version)
    _reassign(peer, version, (name, [(0, [node])]), timeout=0)


@scenario_for_each({"yes": True, "no": False})
def change_of_the_replication_factor(peer: Peer, allowed: bool) -> None:
    name, node = peer.topic().name, _node(peer)
    for replicas in ([node], [node, NOBODY]):
        _reassign(peer, 1, (name, [(0, replicas)]), allow_replication_factor_change=allowed)


@scenario_for_each(range(1))
def listed_reassignments(peer: Peer, version: int) -> None:
    name = peer.topic().name
    for topics in (
        None,
        [],
        [{"name": name, "partition_indexes": [0, 9]}],
        [{"name": name, "partition_indexes": []}],
        [{"name": peer.name("unknown"), "partition_indexes": [0]}],
    ):
        peer.call("list_partition_reassignments", version, timeout=5_000, topics=topics)
    peer.call("list_partition_reassignments", version, timeout=0, topics=None)


def _move(peer: Peer, version: int, *moves: tuple[str, str, list[int]]) -> None:
    """Send AlterReplicaLogDirs. The transcript leaves the request out, because the paths of both endpoints
    differ.
    """
    dirs = [{"path": path, "topics": [{"name": name, "partitions": rows}]} for path, name, rows in moves]
    answer = peer.wire.call("alter_replica_log_dirs", version, dirs=dirs).fields
    peer.note("moves between directories", results=answer["results"])


@scenario_for_each(range(1, 3))
def data_directories(peer: Peer, version: int) -> None:
    """Move partitions to the data directory that holds them, and to other directories."""
    name = peer.topic(partitions=2).name
    (described,) = peer.wire.call("describe_log_dirs", 4, topics=[]).fields["results"]
    here = described["log_dir"]
    for path in (here, f"{here}/", "/nowhere", "relative", ""):
        _move(peer, version, (path, name, [0, 1, 9]))
        _move(peer, version, (path, peer.name("unknown"), [0]))
    _move(peer, version, (here, name, []))
    _move(peer, version, (here, name, [0]), ("/nowhere", name, [0, 1]))
    _move(peer, version, ("/nowhere", name, [0]), (here, name, [0, 1]))
    peer.call("alter_replica_log_dirs", version, dirs=[])
    wanted = [{"path": "/nowhere", "topics": [{"name": name, "partitions": [0, 0]}]}]
    peer.call("alter_replica_log_dirs", version, dirs=wanted)


def _update(peer: Peer, version: int, *updates: tuple[str, int, int]) -> None:
    keys = [
        {"feature": feature, "max_version_level": level}
        | ({"upgrade_type": kind} if version else {"allow_downgrade": kind > 1})
        for feature, level, kind in updates
    ]
    more = {"validate_only": True} if version else {}
    peer.call("update_features", version, timeout=5_000, feature_updates=keys, **more)


@scenario_for_each(range(3))
def features(peer: Peer, version: int) -> None:
    """Ask for levels; a request that could change the cluster for other scenarios is only checked."""
    for update in (
        ("group.version", 1, 1),
        ("transaction.version", 2, 1),
        ("group.version", 2, 1),
        ("group.version", 0, 1),
        ("share.version", -1, 1),
        ("no.such.feature", 1, 1),
    ):
        _update(peer, version, update)
    _update(peer, version)
    _update(peer, version, ("no.such.feature", 1, 1), ("group.version", 1, 1))
    _update(peer, version, ("group.version", 1, 1), ("share.version", 1, 1))


@scenario_for_each({"0": 0, "9": 9})
def unknown_kind_of_upgrade(peer: Peer, kind: int) -> None:
    _update(peer, 2, ("group.version", 1, kind))


@scenario_for_each({"safe": 2, "unsafe": 3})
def downgrade_of_a_feature(peer: Peer, kind: int) -> None:
    _update(peer, 2, ("transaction.version", 1, kind))


@scenario_for_each(range(1))
def unknown_controllers(peer: Peer, version: int) -> None:
    for controller in (NOBODY, -1):
        peer.call("unregister_controller", version, controller_id=controller)


@scenario_for_each(range(1))
def unknown_brokers(peer: Peer, version: int) -> None:
    for broker in (NOBODY, -1):
        peer.call("unregister_broker", version, broker_id=broker)
