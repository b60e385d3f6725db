"""The list of gateways, from the metadata of a cluster."""

from __future__ import annotations

from collections import Counter

from gateway.admin.gateways.messages import GatewayRow, Gateways
from gateway.metadata.image import MetadataImage
from gateway.metadata.leadership import NO_MOVE


def gateways_of(image: MetadataImage, cluster_id: str) -> Gateways:
    """Return the gateways that an image registers."""
    leaders: Counter[int] = Counter()
    preferred: Counter[int] = Counter()
    moving = 0
    for topic in image.topics_by_id.values():
        for partition in topic.partitions.values():
            leaders[partition.leader] += 1
            preferred[partition.replicas[0]] += 1
            moving += partition.next_leader != NO_MOVE
    live = set(image.brokers.live(-1)) if image.brokers.by_id else set()
    draining = image.brokers.draining()
    rows = []
    for node_id, broker in sorted(image.brokers.by_id.items()):
        state = "ended" if node_id not in live else "draining" if node_id in draining else "live"
        place = broker.end_points[0] if broker.end_points else None
        address = "-" if place is None else f"{place.host}:{place.port}"
        led = leaders[node_id] if node_id in live else 0
        rows.append(
            GatewayRow(node_id, address, broker.rack, state, broker.broker_epoch, led, preferred[node_id])
        )
    leaderless = sum(count for node_id, count in leaders.items() if node_id not in live)
    return Gateways(cluster_id, rows, leaderless, moving)
