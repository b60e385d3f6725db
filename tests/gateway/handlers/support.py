"""A node without sockets: real logs in a temporary directory, handlers called as the dispatcher calls them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from kio.index import load_payload_module, load_request_schema
from kio.static.constants import EntityType

from gateway.config import load_config
from gateway.handlers.answering.api import Api, RequestContext
from gateway.protocol.messages import build, encode_response
from gateway.runtime.backlogs.backlog import Backlog
from gateway.runtime.coordinators.group_configs import GroupConfigs
from gateway.runtime.coordinators.group_coordinator import GroupCoordinator
from gateway.runtime.coordinators.share_coordinator import ShareCoordinator
from gateway.runtime.coordinators.transaction_coordinator import TransactionCoordinator
from gateway.runtime.coordinators.transaction_markers import TransactionMarkers
from gateway.runtime.partitions.cold_reads import ColdReads
from gateway.runtime.partitions.fetch_sessions import FetchSessionCache
from gateway.runtime.partitions.flusher import Flusher
from gateway.runtime.partitions.registry import Partitions
from gateway.runtime.services import Endpoint, Services
from gateway.runtime.topics.internal_topics import InternalTopics
from gateway.runtime.topics.metadata_log import MetadataLog, open_metadata_log
from gateway.runtime.topics.producer_id_source import open_producer_ids, open_store
from gateway.runtime.topics.topic_lifecycle import TopicLifecycle
from gateway.runtime.upkeep.disk_room import DiskRoom
from log import LogDirectory, Storage

NOW_MS = 1_700_000_000_000


class FixedClock:
    """Stands still unless a test moves it."""

    def __init__(self) -> None:
        self.time_ms = NOW_MS

    def now_ms(self) -> int:
        return self.time_ms


class FakePeer:
    """A connection that ends when a test says so."""

    peer_host = "127.0.0.1"
    listener_name = "PLAINTEXT"

    def __init__(self) -> None:
        self.callbacks: dict[Hashable, Callable[[], None]] = {}

    def when_gone(self, key: Hashable, callback: Callable[[], None]) -> None:
        self.callbacks[key] = callback

    def forget_gone(self, key: Hashable) -> None:
        self.callbacks.pop(key, None)

    def hang_up(self) -> None:
        for callback in list(self.callbacks.values()):
            callback()


class Node:
    """The services of one node, and `ask` to send it a request."""

    def __init__(self, services: Services, clock: FixedClock) -> None:
        self.services = services
        self.peer = FakePeer()
        """Who asks."""
        self.clock = clock

    async def ask(self, api: Api, version: int, make: Callable[[ModuleType], dict[str, Any]]) -> Any:
        """Handle the request made from kio's module of its version; the answer is encodable."""
        module = load_payload_module(api.key, version, EntityType.request)
        request = build(load_request_schema(api.key, version), **make(module))
        context = RequestContext(self.services, api.key, version, 7, "test", self.peer)
        assert api.handle is not None
        response = await api.handle(context, request)
        assert encode_response(api.key, 7, response)
        return response


@asynccontextmanager
async def open_node(path: Path, *overrides: str, storage: Storage | None = None) -> AsyncIterator[Node]:
    config = load_config(overrides=[f"log.dirs={path}", *overrides])
    loop = asyncio.get_running_loop()
    flusher = Flusher(loop)
    flusher.start()
    clock = FixedClock()
    disk = storage or Storage()
    directory = LogDirectory.open(path, disk, node_id=config.int("node.id"), now_ms=clock.now_ms)
    partitions = Partitions()
    metadata_log = MetadataLog(open_metadata_log(directory), flusher, clock)
    metadata_log.replay()
    lifecycle = TopicLifecycle(
        config=config,
        node_id=config.int("node.id"),
        metadata_log=metadata_log,
        directory=directory,
        partitions=partitions,
        flusher=flusher,
    )
    await lifecycle.start()
    group_configs = GroupConfigs(config, metadata_log)
    internal_topics = InternalTopics(metadata_log, partitions, config.int("node.id"))
    groups = GroupCoordinator(
        config, clock, partitions, metadata_log, internal_topics, group_configs, flusher
    )
    groups.start()
    shares = ShareCoordinator(config, clock, partitions, internal_topics, group_configs, groups, flusher)
    shares.start()
    metadata_log.add_listener(shares.metadata_changed)
    producer_ids = open_producer_ids(config, open_store(config, metadata_log), clock)
    transactions = TransactionCoordinator(
        config,
        clock,
        partitions,
        internal_topics,
        producer_ids,
        TransactionMarkers(clock, partitions, metadata_log.image),
        flusher,
    )
    transactions.markers.listeners.append(groups.transaction_ended)
    transactions.start()
    cold_reads = ColdReads(loop, disk, flusher=flusher)
    cold_reads.start()
    services = Services(
        config=config,
        clock=clock,
        loop=loop,
        node_id=config.int("node.id"),
        cluster_id=directory.cluster_id,
        log_directory=directory,
        flusher=flusher,
        partitions=partitions,
        metadata_log=metadata_log,
        producer_ids=producer_ids,
        fetch_sessions=FetchSessionCache(10),
        cold_reads=cold_reads,
        group_configs=group_configs,
        groups=groups,
        shares=shares,
        transactions=transactions,
        backlog=Backlog(config, clock, partitions, directory, metadata_log, groups, shares),
        advertised={"PLAINTEXT": Endpoint("gateway.example", 9092)},
        disk_room=DiskRoom(config, clock, directory, partitions, metadata_log),
    )
    try:
        yield Node(services, clock)
    finally:
        transactions.stop()
        groups.stop()
        cold_reads.stop()
        await metadata_log.close()
        await flusher.idle()
        flusher.stop()
        directory.close(clean=True)


def versions(api: Api) -> list[int]:
    return list(range(api.min_version, api.max_version + 1))
