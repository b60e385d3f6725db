"""The limits of memory and tables, and how near the gateway is to each. docs/limits.md says what happens at a limit."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from gateway.metrics.metric import Samples, Sources, Subject, gauge

USED: Final = gauge(
    "seqgate_limit_used", "What counts towards a limit now. The label is the setting of the limit.", "setting"
)
MOST: Final = gauge("seqgate_limit_max", "The limit. A setting without a limit has no value here.", "setting")
_UNLIMITED: Final = 2**31 - 1
"""The highest value of a setting of type INT: no limit."""


def _read(sources: Sources) -> Samples:
    for setting, used, most in _limits(sources):
        yield USED.at(used, setting)
        if 0 < most != _UNLIMITED and most < sys.maxsize:
            yield MOST.at(most, setting)


def _limits(sources: Sources) -> Iterator[tuple[str, int, int]]:
    """Yield setting, use and limit of each table and buffer that all clients share."""
    services, server = sources.services, sources.server
    config, partitions = services.node.config, services.partitions
    environment = partitions.log_directory.environment
    producers = environment.producer_limit
    held = services.upkeep.backlog.held
    yield "max.connections", len(server), config.int("max.connections")
    yield "queued.max.request.bytes", server.memory.used_bytes, server.memory.limit_bytes
    yield "seqgate.response.backlog.max.bytes", server.unread.total_bytes, server.unread.limit_bytes
    yield "seqgate.max.partitions", len(partitions.registry), config.int("seqgate.max.partitions")
    if producers is not None:
        yield "seqgate.producer.max", len(producers), producers.max_in_all
    names = environment.name_budget
    yield "seqgate.deduplication.names.max", names.in_all, names.max_in_all
    delayed = environment.delayed_limit
    yield "seqgate.delayed.records.max", delayed.in_all, delayed.max_in_all
    sessions = partitions.fetch_sessions
    yield "max.incremental.fetch.session.cache.slots", len(sessions), sessions.slots
    yield "seqgate.backlog.hold.max.requests", len(held), held.max_requests
    yield "seqgate.backlog.hold.max.bytes", held.held_bytes, held.max_bytes
    handles = environment.storage.descriptors
    yield "seqgate.log.max.open.files", len(handles), handles.limit
    unwritten = partitions.flusher.unwritten
    if unwritten is not None:
        yield (
            "seqgate.cluster.unwritten.max.bytes",
            unwritten.size_bytes,
            config.int("seqgate.cluster.unwritten.max.bytes"),
        )


SUBJECT: Final = Subject("Limits", (USED, MOST), _read)
