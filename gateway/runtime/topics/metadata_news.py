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
from typing import Final

import msgspec
from kio.schema.types import BrokerId
from kio.static.primitive import i64

from seqgate.gateway.peer.peers import AsksPeers, PeerUnavailable
from seqgate.gateway.runtime.topics.brokers import Brokers

logger = logging.getLogger(__name__)

OTHERS_WAIT_S: Final = 0.2
"""How long an answer to an administrator waits until the other gateways have the change."""


class _Listener(msgspec.Struct):
    """Another gateway, in the session with this epoch."""

    epoch: int
    known_offset: int = -1
    """The offset up to which this gateway knows that the other has the metadata."""
    telling: asyncio.Task[None] | None = None
    """The news under way: at most one. What changes meanwhile is told after it."""
    is_late: bool = False
    """Whether the last news had no answer in time. Nobody waits for the gateway until it answers again."""


class MetadataNews:
    """The news for each other live gateway, and how far it has the metadata; none without others."""

    def __init__(self, brokers: Brokers, peers: AsksPeers, last_offset: Callable[[], int]) -> None:
        """`last_offset` returns the offset of the newest record in this gateway's metadata."""
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

    async def settled(self, limit_s: float = OTHERS_WAIT_S) -> None:
        """Wait until the others have what was changed by now, or are late. A gateway that does not answer
        delays one caller, for `limit_s` at most: later ones do not wait for it.
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
        from kio.schema.broker_heartbeat.v0.request import BrokerHeartbeatRequest  # noqa: PLC0415 - for peers

        request = BrokerHeartbeatRequest(
            broker_id=BrokerId(self._brokers.node_id),
            broker_epoch=i64(self._brokers.epoch_of(self._brokers.node_id)),
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
