"""Who leads each partition, with the epoch of the leader. Raises ControlError."""

from __future__ import annotations

from typing import Final, NamedTuple

from gateway.admin.remote.cluster import Cluster, metadata

TIMEOUT_S: Final = 10.0

Place = tuple[str, int]


class Leader(NamedTuple):
    """The node that leads a partition, -1 for nobody, and the epoch that began with it."""

    node_id: int
    epoch: int


def leaders_of(cluster: Cluster) -> dict[Place, Leader]:
    """Return the leader of each partition that this login may see."""
    return {
        (str(topic.name), int(row.partition_index)): Leader(int(row.leader_id), int(row.leader_epoch))
        for topic in metadata(cluster.reached, TIMEOUT_S).topics
        for row in topic.partitions
    }
