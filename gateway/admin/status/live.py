"""The state of a running gateway."""

from __future__ import annotations

import os
from pathlib import Path

from seqgate import __version__
from seqgate.gateway.admin.names import name_counters
from seqgate.gateway.admin.operation import LiveGateway
from seqgate.gateway.admin.producers import producer_counters
from seqgate.gateway.admin.repair import CutRow, DamagedRow
from seqgate.gateway.admin.server import Traffic
from seqgate.gateway.admin.status.messages import (
    BucketState,
    ListenerCertificate,
    OfflinePartition,
    Status,
    StatusRequest,
)
from seqgate.gateway.metadata.image import INTERNAL_TOPICS
from seqgate.gateway.runtime.partitions.registry import Partitions
from seqgate.gateway.runtime.services import NodeServices, Services
from seqgate.gateway.security.certificates import age_warning


def status(gateway: LiveGateway, _: StatusRequest) -> Status:
    """Return the state of the gateway."""
    services = gateway.services
    traffic = gateway.traffic()
    state = services.coordinators.producer_ids.state()
    prefetched = 0 if state.prefetched is None else state.prefetched.size
    return Status(
        version=__version__,
        pid=os.getpid(),
        node_id=services.node.node_id,
        cluster_id=services.node.cluster_id,
        data_dir=str(Path(services.node.config.str("log.dirs")).absolute()),
        listeners={name: endpoint.shown for name, endpoint in services.node.brokers.advertised.items()},
        bound={name: endpoint.shown for name, endpoint in services.node.bound.items()},
        uptime_ms=services.node.clock.now_ms() - gateway.started_at_ms,
        topics=len(services.partitions.registry.by_name),
        internal_topics=sum(name in INTERNAL_TOPICS for name in services.partitions.registry.by_name),
        partitions=len(services.partitions.registry),
        is_disk_short=services.upkeep.disk_room.is_disk_short,
        min_free_bytes=services.upkeep.disk_room.min_free_bytes,
        disk_refusals=services.upkeep.disk_room.refused_batches,
        offline_partitions=_offline(services.partitions.registry),
        damaged=[DamagedRow.of(*found) for found in services.partitions.log_directory.known_damage()],
        cut=[CutRow.of(*found) for found in services.partitions.log_directory.known_cut_bytes()],
        connections=traffic.connections,
        refused_connections=traffic.refused_connections,
        requests=traffic.requests,
        failed_logins=traffic.failed_logins,
        certificates=_certificates(services.node),
        flush_rounds=services.partitions.flusher.rounds,
        flush_failures=services.partitions.flusher.failures,
        producer_id_store=gateway.blocks.name,
        producer_ids_left=state.left + prefetched,
        producer_id_store_error=state.last_error,
        counters=producer_counters(services.partitions),
        names=name_counters(services.partitions),
        bucket=bucket_state(services, traffic),
        led_partitions=_led(services),
        producers=len(
            {entry.producer_id for each in services.partitions.registry for entry in each.log.producers}
        ),
    )


def _led(services: Services) -> int:
    brokers = services.node.brokers
    topics = services.topics.metadata_log.image.topics_by_id.values()
    return sum(brokers.leads(partition) for topic in topics for partition in topic.partitions.values())


def _certificates(node: NodeServices) -> list[ListenerCertificate]:
    now_ms = node.clock.now_ms()
    return [
        ListenerCertificate(name, listener.valid_until_ms, age_warning(listener.valid_until_ms, now_ms))
        for name, listener in node.tls_listeners.items()
    ]


def _offline(partitions: Partitions) -> list[OfflinePartition]:
    """List the partitions that failed while they were open, then those whose files can't be opened."""
    offline = [
        OfflinePartition(partition.topic, partition.index, partition.log.offline_because or "unknown")
        for partition in partitions
        if partition.log.offline
    ]
    offline += [
        OfflinePartition(topic.name, index, "it can't be opened")
        for topic in partitions.by_name.values()
        for index in topic.failed
    ]
    return offline


# The state of a running gateway's bucket.


def bucket_state(services: Services, traffic: Traffic) -> BucketState | None:
    """Return the state of the bucket; None for a gateway without one."""
    calls, unwritten = traffic.calls, services.partitions.flusher.unwritten
    if calls is None or unwritten is None:
        return None
    config, uploads = services.node.config, services.upkeep.find_uploads()
    reads = services.partitions.bucket_reads
    return BucketState(
        address=config.str("seqgate.cluster"),
        puts=calls.puts,
        gets=calls.gets,
        lists=calls.lists,
        deletes=calls.deletes,
        bytes_up=calls.bytes_up,
        bytes_down=calls.bytes_down,
        failures=calls.failures,
        us_dollars=calls.us_dollars,
        unwritten_bytes=unwritten.size_bytes,
        unwritten_max_bytes=config.int("seqgate.cluster.unwritten.max.bytes"),
        is_behind=unwritten.is_too_much,
        cache=traffic.cache,
        uploads=None if uploads is None else uploads.progress(),
        replica_bytes=None if reads is None else reads.bytes_read,
    )
