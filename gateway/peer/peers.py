"""The other gateways as a client sees them: a connection to each that was asked, and a queue before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from seqgate.gateway.config import Config
from seqgate.gateway.tasks import start_task

if TYPE_CHECKING:
    from seqgate.gateway.peer.one_peer import OnePeer


class PeerAddress(NamedTuple):
    """The address of another gateway's listener between brokers."""

    host: str
    port: int


ANSWER_TIMEOUT_S: Final = 30.0
"""Time for an answer, unless the caller gives another: Kafka's request.timeout.ms between brokers."""


class AsksPeers(Protocol):
    """Sends requests to other gateways by their node ids; `Peers` is one."""

    async def ask(self, node_id: int, request: Any, *, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
        """Return the answer: kio's response of the request's version. Raises PeerUnavailable."""


def client_id_of(node_id: int) -> str:
    """Return the client id of a gateway's requests to other gateways."""
    return f"broker-{node_id}"


_GONE: Final = "it is unknown or fenced"
_MOVED: Final = "it has another address now"


class Peers:
    """Asks other gateways. Where this gateway is alone, it holds no connection. Requests to one gateway go
    over one connection, in the order of the calls, and their answers come in that order: a request that waits
    at the other gateway holds up all requests behind it, so ask nothing that polls.
    """

    def __init__(self, config: Config, node_id: int, find: Callable[[int], PeerAddress | None]) -> None:
        """`find` returns the present address of a broker; None for one that is unknown or fenced."""
        self._config = config
        self._node_id = node_id
        self._client_id = client_id_of(node_id).encode()
        self._find = find
        self._by_id: dict[int, OnePeer] = {}
        """The gateways that were asked, at most as many as the metadata has brokers."""
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def apart(self) -> Peers:
        """Return `Peers` with connections that nobody else's requests hold up. The caller closes them."""
        return Peers(self._config, self._node_id, self._find)

    async def ask(self, node_id: int, request: Any, *, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
        """Return the answer to a request of kio: kio's response of the same version, with plain numbers for
        error codes. Raises PeerUnavailable; then the request may have been carried out, or not.
        """
        if self._is_closed:
            raise PeerUnavailable("this gateway stops")
        address = self._find(node_id)
        if address is None:
            self._drop(node_id, _GONE)
            raise PeerUnavailable(f"broker {node_id} is unknown or fenced")
        peer = self._by_id.get(node_id)
        if peer is not None and peer.address != address:
            self._drop(node_id, _MOVED)
            peer = None
        if peer is None:
            from seqgate.gateway.peer.one_peer import OnePeer  # noqa: PLC0415 - only clusters ask

            peer = OnePeer(self._config, node_id, address, self._client_id)
            self._by_id[node_id] = peer
        return await peer.ask(request, timeout_s)

    async def metadata_changed(self, records: Sequence[object]) -> None:  # noqa: ARG002 - a log listener
        """Close the connections to brokers that are fenced or unregistered now, or have another address."""
        for node_id, peer in list(self._by_id.items()):
            address = self._find(node_id)
            if address != peer.address:
                self._drop(node_id, _GONE if address is None else _MOVED)

    async def close(self) -> None:
        """Close all connections; requests in flight raise PeerUnavailable."""
        self._is_closed = True
        for node_id in list(self._by_id):
            self._drop(node_id, "this gateway stops")
        await asyncio.gather(*self._closing)

    def _drop(self, node_id: int, reason: str) -> None:
        peer = self._by_id.pop(node_id, None)
        if peer is not None:
            start_task(self._closing, peer.close(reason))


class PeerUnavailable(Exception):
    """Another gateway did not answer; the message says why: unknown, fenced, refusing the connection, or
    silent. Whether the request was carried out is unknown: the connection may have broken after it.
    """
