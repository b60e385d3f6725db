"""Whether the gateway can take writes, and why not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from seqgate.gateway.admin.operation import LiveGateway
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.partitions.registry import Partitions
from seqgate.gateway.sizes import size_in_words

NAMED: Final = 10
"""Complaints that one answer has; it counts the others."""


async def complaints(gateway: LiveGateway) -> list[str]:
    """Return a sentence for each reason why producers are refused or records can't be used."""
    found = [complaint async for complaint in in_slices(each_complaint(gateway)) if complaint is not None]
    more = len(found) - NAMED
    return found if more <= 0 else [*found[:NAMED], f"{more} more reasons"]


def each_complaint(gateway: LiveGateway) -> Iterator[str | None]:
    """Yield the complaints, and None where requests may run."""
    services = gateway.services
    room, registry = services.upkeep.disk_room, services.partitions.registry
    if room.is_disk_short:
        yield (
            f"the disk has less than {size_in_words(room.min_free_bytes)} free (seqgate.log.min.free.bytes); "
            "producers are refused"
        )
    if room.is_bucket_behind:
        yield (
            "too many records are not in the bucket yet (seqgate.cluster.unwritten.max.bytes); "
            "producers are refused"
        )
    if registry.may_be_led_elsewhere:
        yield "the lease of this gateway is over; another gateway may lead its partitions"
    state = services.coordinators.producer_ids.state()
    if state.last_error is not None and not state.left and state.prefetched is None:
        yield f"no producer ids are left, and no block can be claimed: {state.last_error}"
    yield from _offline(registry)


def _offline(registry: Partitions) -> Iterator[str | None]:
    for partition in registry:
        reason = partition.log.offline_because
        yield None if reason is None else f"{partition.topic}-{partition.index} is offline: {reason}"
    for topic in list(registry.by_name.values()):
        yield None
        yield from (f"{topic.name}-{index} can't be opened" for index in sorted(topic.failed))
