"""The port through which handlers and coordinators ask other gateways."""

from __future__ import annotations

from typing import Any, Final, Protocol

from gateway.peer.errors import PeerUnavailable

ANSWER_TIMEOUT_S: Final = 30.0
"""Time for an answer, unless the caller gives another: Kafka's request.timeout.ms between brokers."""


class AsksPeers(Protocol):
    """Sends requests to other gateways by their node ids; `Peers` is one."""

    async def ask(self, node_id: int, request: Any, *, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
        """Return the answer to a request of kio: kio's response of the same version. Raises PeerUnavailable."""


class NoPeers:
    """The port of a gateway that has no others beside it."""

    async def ask(self, node_id: int, request: Any, *, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:  # noqa: ARG002 - part of the port
        """Raise PeerUnavailable."""
        raise PeerUnavailable(f"broker {node_id} is unknown: this gateway serves alone")
