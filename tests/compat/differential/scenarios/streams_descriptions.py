"""Descriptions of the topologies of streams groups (KIP-1331): a member is asked for one, pushes it, and
StreamsGroupDescribe tells it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.compat.differential.peer import Peer
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.compat.differential.streams_member import alone, beside, describe_nodes, stateless
from tests.support.wire import Plain


def node(name: str, node_type: int, *successors: str, **more: Any) -> Plain:
    nothing = {"source_topics": [], "sink_topic": None, "stores": []}
    return {"name": name, "node_type": node_type, **nothing, "successors": list(successors), **more}


def described(*nodes: Plain, stores: Sequence[Plain] = ()) -> Plain:
    return {"subtopologies": [{"subtopology_id": "0", "nodes": list(nodes)}], "global_stores": list(stores)}


SOURCE, PROCESSOR, SINK = 1, 2, 3
READS = node("KSTREAM-SOURCE-0", SOURCE, "COUNT-1", source_topics=["lines", "more"])
COUNTS = node("COUNT-1", PROCESSOR, "KSTREAM-SINK-2", stores=["counts"])
WRITES = node("KSTREAM-SINK-2", SINK, sink_topic="words")
GLOBAL = {"source": node("g", SOURCE, "p", source_topics=["all"]), "processor": node("p", PROCESSOR)}
FULL = {"source_topics": ["t", "t"], "sink_topic": "w", "stores": ["s", "s"]}


def push(peer: Peer, group_id: str, description: Plain, member_id: str = "m1", epoch: int = 0) -> Plain:
    return peer.call(
        "streams_group_topology_description_update",
        0,
        group_id=group_id,
        member_id=member_id,
        topology_epoch=epoch,
        topology_description=description,
    )


@scenario
def description_of_a_topology(peer: Peer) -> None:
    """A member is asked for a description once; the description is told until the group is deleted."""
    _, member = stateless(peer, partitions=1)
    group_id = member.group_id
    member.version = 1
    describe_nodes(peer, group_id)
    member.join()
    member.beat()
    describe_nodes(peer, group_id)
    push(peer, group_id, described(READS, COUNTS, WRITES, stores=[GLOBAL]))
    member.beat()
    describe_nodes(peer, group_id)
    describe_nodes(peer, group_id, nodes=False)
    push(peer, group_id, described(READS))
    describe_nodes(peer, group_id)
    member.leave()
    describe_nodes(peer, group_id)
    push(peer, group_id, described(READS))
    peer.call("delete_groups", 2, groups_names=[group_id])
    describe_nodes(peer, group_id)
    member.join()
    describe_nodes(peer, group_id)


@scenario
def a_member_of_version_0_is_not_asked(peer: Peer) -> None:
    _, member = alone(peer)
    second = beside(member)
    second.version = 1
    second.join()
    second.beat()
    member.beat()


@scenario_for_each(
    {
        "nothing": {"subtopologies": [], "global_stores": []},
        "no nodes": described(),
        "full nodes": described(*(node(f"n{kind}", kind, "x", "x", **FULL) for kind in (1, 2, 3))),
        "no type": described(node("n", 0)),
        "unknown type": described(node("n", 4)),
        "store of a sink": described(stores=[{"source": READS, "processor": WRITES}]),
        "store of a processor": described(stores=[{"source": COUNTS, "processor": COUNTS}]),
        "the same node twice": described(READS, READS),
        "empty names": described(node("", SOURCE, "", source_topics=[""])),
    }
)
def push_of(peer: Peer, description: Plain) -> None:
    _, member = alone(peer)
    push(peer, member.group_id, description)
    describe_nodes(peer, member.group_id)


@scenario_for_each(
    {
        "group": {"group_id": ""},
        "blank group": {"group_id": " "},
        "unknown group": {"group_id": "nobody"},
        "member": {"member_id": ""},
        "blank member": {"member_id": " "},
        "unknown member": {"member_id": "x"},
        "later topology": {"topology_epoch": 1},
        "earlier topology": {"topology_epoch": -1},
    }
)
def push_with(peer: Peer, more: Plain) -> None:
    _, member = alone(peer)
    request = {"group_id": member.group_id, "member_id": "m1", "topology_epoch": 0}
    description = described(READS)
    peer.call(
        "streams_group_topology_description_update",
        0,
        **{**request, **more},
        topology_description=description,
    )
    describe_nodes(peer, member.group_id)
