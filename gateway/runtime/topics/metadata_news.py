"""Tells the other gateways at once that this one has changed the metadata, so that they need not find it at
their next look.

The news is BrokerHeartbeat, with which Kafka's brokers say how far they have read the metadata. A gateway
that hears of a newer offset than its own looks at the metadata, and answers when it has got so far. A gateway
of an older release does not know the request and gets none; it finds the change by itself, as does one that
the news does not reach (`seqgate.cluster.metadata.poll.ms`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kio.schema.types import BrokerId
from kio.static.primitive import i64

from gateway.config import Config
from gateway.peer.peers import AsksPeers, PeerUnavailable
from gateway.runtime.loop.machine import split_file_handles
from gateway.runtime.partitions.fetch_sessions import FetchSessionCache
from gateway.runtime.partitions.log_flusher import LogFlusher
from gateway.runtime.partitions.unwritten import PutLimits
from gateway.runtime.topics.brokers import Brokers
from log import Storage
from pid_allocator import ProducerIdAllocator
from seq_validator import ProducerLimit

logger = logging.getLogger(__name__)

WAIT_S: Final = 0.2
"""How long an answer to an administrator waits until the others have his change, and a gateway that is told
of a change until it has the change. After that nobody waits."""


@dataclass(slots=True)
class _Listener:
    """Another gateway, in the session with this epoch."""

    epoch: int
    known_offset: int = -1
    """The offset up to which this gateway knows that the other has the metadata."""
    telling: asyncio.Task[None] | None = None
    """The news under way: at most one. What changes meanwhile is told after it."""
    is_late: bool = False
    """Whether the last news was not answered in time, or not at all. Nobody waits for the gateway until it
    answers again.
    """


class MetadataNews:
    """The news for each other live gateway, and how far each has the metadata. A gateway that is alone sends
    none.
    """

    def __init__(
        self, node_id: int, brokers: Brokers, peers: AsksPeers, last_offset: Callable[[], int]
    ) -> None:
        """`last_offset` returns the offset of the newest record in this gateway's metadata."""
        self._node_id = node_id
        self._brokers = brokers
        self._peers = peers
        self._last_offset = last_offset
        self._listeners: dict[int, _Listener] = {}
        """The other gateways by their node ids: those that were live at the last change."""

    def changed(self) -> None:
        """Begin to tell all other live gateways how far the metadata is; this gateway has just changed it."""
        epochs = {node_id: self._brokers.epoch_of(node_id) for node_id in self._brokers.others()}
        known, self._listeners = self._listeners, {}
        for node_id, epoch in epochs.items():
            listener = known.get(node_id)
            if listener is None or listener.epoch != epoch:
                listener = _Listener(epoch)
            self._listeners[node_id] = listener
            if listener.telling is None:
                listener.telling = asyncio.get_running_loop().create_task(self._tell(node_id, listener))

    async def settled(self, limit_s: float = WAIT_S) -> None:
        """Wait until the others have what was changed by now, or are late.

        A gateway that does not answer delays one caller, for `limit_s` at most: later ones do not wait for
        it.
        """
        offset = self._last_offset()
        waited = [
            (listener, listener.telling)
            for listener in self._listeners.values()
            if listener.telling is not None and not listener.is_late and listener.known_offset < offset
        ]
        if not waited:
            return
        await asyncio.wait([telling for _, telling in waited], timeout=max(limit_s, 0))
        for listener, telling in waited:
            listener.is_late = listener.is_late or not telling.done()

    async def _tell(self, node_id: int, listener: _Listener) -> None:
        offset = -1
        try:
            while offset < self._last_offset():
                offset = self._last_offset()
                listener.is_late = not await self._has_heard(node_id, offset)
                if not listener.is_late:
                    listener.known_offset = offset
        finally:
            listener.telling = None

    async def _has_heard(self, node_id: int, offset: int) -> bool:
        """Tell another gateway how far the metadata is; return whether it is as far now."""
        from kio.schema.broker_heartbeat.v0.request import (  # noqa: PLC0415 - only a gateway of several asks
            BrokerHeartbeatRequest,
        )

        request = BrokerHeartbeatRequest(
            broker_id=BrokerId(self._node_id),
            broker_epoch=i64(self._brokers.epoch_of(self._node_id)),
            current_metadata_offset=i64(offset),
            want_fence=False,
            want_shut_down=False,
        )
        try:
            answer = await self._peers.ask(node_id, request)
        except PeerUnavailable as error:
            logger.debug("broker %d was not told of the metadata up to %d: %s", node_id, offset, error)
            return False
        if answer.error_code:
            logger.debug("broker %d does not listen to news: error %d", node_id, answer.error_code)
        return not answer.error_code and bool(answer.is_caught_up)


# Applies settings to parts that do not read settings themselves, now and after each change.


def follow_open_files(config: Config, storage: Storage, handles_limit: int) -> None:
    """Follow `seqgate.log.max.open.files`, but at most the files that the process may open (`handles_limit`).

    After the limit was lowered, surplus files are closed when the next file is opened.
    """

    def apply() -> None:
        storage.descriptors.limit = split_file_handles(
            handles_limit, config.int("seqgate.log.max.open.files")
        ).files

    config.follow(apply)


def follow_producer_limit(config: Config, limit: ProducerLimit) -> None:
    """Follow `seqgate.producer.max` and related settings.

    After a limit was lowered, idle producers are evicted when the next new producer comes.
    """

    def apply() -> None:
        limit.max_per_partition = config.int("seqgate.producer.max.per.partition")
        limit.max_in_all = config.int("seqgate.producer.max")
        limit.min_idle_ms = config.int("seqgate.producer.min.idle.ms")

    config.follow(apply)


def follow_flusher(config: Config, flusher: LogFlusher) -> None:
    """Follow `seqgate.flush.inline.max.ms`, from the next flush on."""

    def apply() -> None:
        flusher.inline_limit_s = config.double("seqgate.flush.inline.max.ms") / 1000

    config.follow(apply)


def put_limits(config: Config) -> PutLimits:
    """Return the limits on the objects that a gateway in a cluster writes."""
    return PutLimits(
        puts_per_second=config.int("seqgate.cluster.puts.per.second"),
        puts_in_flight=config.int("seqgate.cluster.puts.in.flight"),
        put_max_bytes=config.int("seqgate.cluster.put.max.bytes"),
        unwritten_max_bytes=config.int("seqgate.cluster.unwritten.max.bytes"),
    )


def follow_producer_ids(config: Config, producer_ids: ProducerIdAllocator) -> None:
    """Follow the settings for the size of the next block, and for when it is claimed."""

    def apply() -> None:
        producer_ids.block_size = config.int("seqgate.producer.id.block.size")
        producer_ids.prefetch_at = config.double("seqgate.producer.id.prefetch.ratio")

    config.follow(apply)


def follow_fetch_sessions(config: Config, sessions: FetchSessionCache) -> None:
    """Follow `seqgate.fetch.session.max.partitions`."""

    def take() -> None:
        sessions.room.limit = config.int("seqgate.fetch.session.max.partitions")

    config.follow(take)
