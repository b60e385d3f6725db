"""A node without sockets: real logs in a temporary directory. Tests call handlers as the dispatcher does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from seqgate.gateway.config import load_config
from seqgate.gateway.handlers.answering.api import UNKNOWN_SOFTWARE, Api, RequestContext
from seqgate.gateway.protocol.messages import build, encode_response, request_module, request_type, written
from seqgate.gateway.runtime.composition import (
    Surroundings,
    compose,
    open_metadata,
    start_coordinators,
    stop_coordinators,
)
from seqgate.gateway.runtime.loop.clock import Clock
from seqgate.gateway.runtime.loop.machine import Machine
from seqgate.gateway.runtime.partitions.flusher import Flusher, LogFlusher
from seqgate.gateway.runtime.partitions.object_flusher import ObjectFlusher, WriteAheadLog
from seqgate.gateway.runtime.partitions.partition import ALWAYS_READY, Readiness
from seqgate.gateway.runtime.partitions.unwritten import PutLimits
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.runtime.topics.brokers import Endpoint
from seqgate.gateway.runtime.topics.metadata_log import (
    LocalJournal,
    MetadataJournal,
    MetadataLog,
    open_metadata_log,
)
from seqgate.log import CachedDurability, Durability, LocalDurability, LogDirectory, PartitionLog, Storage
from seqgate.seq_validator import RefusedBatches

R = TypeVar("R")
NOW_MS = 1_700_000_000_000


class FixedClock(Clock):
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.time_ms = NOW_MS

    def now_ms(self) -> int:
        return self.time_ms


class FixedMachine(Machine):
    """A machine whose time passes only when a test moves its clock."""

    def seconds(self) -> float:
        return self.clock.now_ms() / 1000


class FakePeer:
    """A client connection that ends when a test closes it."""

    peer_host = "127.0.0.1"
    peer_port = 50312
    software = UNKNOWN_SOFTWARE
    name = "127.0.0.1:50312"
    listener_name = "PLAINTEXT"
    principal = "User:ANONYMOUS"
    token_id: str | None = None
    number = 1
    is_nameless = False
    producer_id = producer_epoch = -1

    def __init__(self) -> None:
        self.refused: RefusedBatches | None = None
        self.callbacks: dict[Hashable, Callable[[], None]] = {}
        self.muted_ms: list[int] = []
        """The times for which the connection was muted."""
        self.holds_room = False
        """Whether a large request is not decoded yet."""

    def when_gone(self, key: Hashable, callback: Callable[[], None]) -> None:
        self.callbacks[key] = callback

    def forget_gone(self, key: Hashable) -> None:
        self.callbacks.pop(key, None)

    def mute(self, throttle_ms: int) -> None:
        self.muted_ms.append(throttle_ms)

    def hold_room(self, size_bytes: int) -> Callable[[], None]:
        self.holds_room = True
        return partial(setattr, self, "holds_room", False)

    def hang_up(self) -> None:
        for callback in list(self.callbacks.values()):
            callback()


class Node:
    """The services of one node; `ask` sends it a request."""

    def __init__(self, services: Services, clock: FixedClock) -> None:
        self.services = services
        self.peer = FakePeer()
        """The client that sends the requests."""
        self.clock = clock

    def context(self, api: Api[R], version: int, peer: FakePeer | None = None) -> RequestContext[R]:
        """Return the surroundings of a request of this API."""
        services = self.services
        return RequestContext(
            services.node, api.reaches(services), api.key, version, 7, "test", peer or self.peer
        )

    async def ask(self, api: Api[Any], version: int, make: Callable[[ModuleType], dict[str, Any]]) -> Any:
        """Handle the request, built from kio's module of its version, and check that the answer can be
        encoded.
        """
        module = request_module(api.key, version)
        request = build(request_type(api.key, version), **make(module))
        if api.reader is not None:
            request = api.reader(version)(memoryview(written(request)), 0)[0]
        context = self.context(api, version)
        assert api.handle is not None
        response = await api.handle(context, request)
        assert encode_response(api.key, 7, response)
        return response


@asynccontextmanager
async def open_node(
    path: Path,
    *overrides: str,
    storage: Storage | None = None,
    wal: WriteAheadLog | None = None,
    journal: Callable[[PartitionLog], MetadataJournal] | None = None,
    readiness: Readiness = ALWAYS_READY,
) -> AsyncIterator[Node]:
    """Open a node on a data directory; with `wal` records are durable once that log confirms them.

    A `journal` makes changes of the metadata durable elsewhere than in the local log.
    """
    config = load_config(overrides=[f"log.dirs={path}", *overrides])
    clock = FixedClock()
    machine = FixedMachine(clock, storage)
    loop = asyncio.get_running_loop()
    durability: Durability
    flusher: LogFlusher
    if wal is None:
        durability = LocalDurability(machine.storage)
        flusher = Flusher(loop, durability=durability)
    else:
        durability = CachedDurability(machine.storage)
        flusher = ObjectFlusher(
            loop, wal=wal, durability=durability, limits=PutLimits.of(config), machine=machine
        )
    directory = LogDirectory.open(
        path, machine.storage, node_id=config.int("node.id"), now_ms=clock.now_ms, durability=durability
    )
    flusher.start()
    if journal is None:
        metadata_log = await open_metadata(directory, lambda log: LocalJournal(log, flusher, clock))
    else:
        metadata_log = MetadataLog(journal(open_metadata_log(directory)))
        metadata_log.replay()
    services = await compose(
        config, machine, directory, flusher, metadata_log, Surroundings(readiness=readiness)
    )
    services.node.brokers.advertised["PLAINTEXT"] = Endpoint("gateway.example", 9092)
    services.node.bound["PLAINTEXT"] = Endpoint("::", 9092)
    start_coordinators(services.coordinators, services.topics)
    services.partitions.cold_reads.start()
    try:
        yield Node(services, clock)
    finally:
        stop_coordinators(services.coordinators)
        services.partitions.cold_reads.stop()
        services.partitions.batch_threads.stop()
        services.telemetry.stop()
        await metadata_log.close()
        await flusher.idle()
        flusher.stop()
        directory.close(clean=True)


def versions(api: Api[Any]) -> list[int]:
    return list(range(api.versions[0], api.versions[1] + 1))
