"""Makes another gateway the leader of a partition, and drains gateways."""

from __future__ import annotations

from typing import Final

from gateway.admin.gateways import remote
from gateway.admin.gateways.messages import DrainRequest, MoveRequest
from gateway.admin.remote.cluster import Cluster
from gateway.admin.request import ControlError
from gateway.console.asking.connections import leaders_of
from gateway.console.page import Answer, Confirmation, Redirect, Visit

LONGEST_MS: Final = 15_000
"""Time for which the console waits for the end of a move or a drain; afterwards it goes on without the console."""
_LARGEST: Final = (1 << 31) - 1


def move(visit: Visit) -> Answer:
    """Make a gateway the leader of a partition after a confirmation. Raises ControlError."""
    topic = visit.text("topic").strip()
    partition = visit.optional_number("partition", 0, _LARGEST)
    node_id = visit.optional_number("node", 0, _LARGEST)
    if not topic or partition is None or node_id is None:
        raise ControlError("a move needs a topic, a partition and a node; fill all three")
    with visit.cluster() as cluster:
        now = _leader(cluster, topic, partition)
        if node_id == now:
            raise ControlError(f"node {node_id} leads {topic}-{partition} already; choose another node")
        if not visit.is_confirmed:
            return Confirmation(
                title=f"Move {topic}-{partition} to node {node_id}?",
                action="Move the partition",
                back="/cluster",
                sentences=(
                    "The leader hands the partition over; producers and consumers follow by themselves.",
                    "The partition prefers its new leader from now on.",
                ),
                changes=[(f"leader of {topic}-{partition}", _node(now), _node(node_id))],
            )
        remote.move(cluster, MoveRequest(topic, partition, node_id, LONGEST_MS))
    return Redirect("/cluster", notice=f"Node {node_id} leads {topic}-{partition}.")


def _leader(cluster: Cluster, topic: str, partition: int) -> int:
    found = leaders_of(cluster).get((topic, partition))
    if found is None:
        raise ControlError(f"there is no partition {topic}-{partition}")
    return found.node_id


def _node(node_id: int) -> str:
    return "nobody" if node_id < 0 else f"node {node_id}"


def drain(visit: Visit) -> Answer:
    """Let a gateway hand over all partitions after a confirmation. Raises ControlError."""
    node_id = visit.number("node", -1, 0, _LARGEST)
    if node_id < 0:
        raise ControlError("the form names no node; open the page of the cluster again")
    with visit.cluster() as cluster:
        led = sum(leader.node_id == node_id for leader in leaders_of(cluster).values())
        if not visit.is_confirmed:
            return Confirmation(
                title=f"Drain node {node_id}?",
                action="Drain the node",
                back="/cluster",
                sentences=(
                    f"Node {node_id} hands over the {led:,} partitions that it leads, and gets no new ones, until it starts again.",
                    "It goes on to serve clients, so that you can stop it without a pause for anyone.",
                ),
                changes=[(f"partitions that node {node_id} leads", f"{led:,}", "0")],
            )
        left = remote.drain(cluster, DrainRequest(node_id, LONGEST_MS)).leaders
    sentence = f"still leads {left:,} partitions, and hands them over" if left else "leads nothing any more"
    return Redirect("/cluster", notice=f"Node {node_id} {sentence}.")
