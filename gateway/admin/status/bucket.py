"""The state of a running gateway's bucket."""

from __future__ import annotations

from gateway.admin.status.messages import BucketState
from gateway.admin.traffic import Traffic
from gateway.runtime.services import Services


def bucket_state(services: Services, traffic: Traffic) -> BucketState | None:
    """Return the state of the bucket; None for a gateway without one."""
    calls, unwritten = traffic.calls, services.partitions.flusher.unwritten
    if calls is None or unwritten is None:
        return None
    config, uploads = services.node.config, services.upkeep.uploads
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
