"""InitProducerId without transactions."""

from __future__ import annotations

from typing import Any

from tests.compat.differential.peer import Peer
from tests.compat.differential.scenario import scenario, scenario_for_each


@scenario_for_each(range(6))
def every_version(peer: Peer, version: int) -> None:
    """Every call hands out a new id with epoch 0."""
    for _ in range(3):
        peer.call("init_producer_id", version, transactional_id=None, transaction_timeout=60_000)


@scenario_for_each((3, 4, 5))
def with_id_and_epoch(peer: Peer, version: int) -> None:
    """Send a former producer id and epoch without a transactional id: they are ignored."""
    asked: dict[str, Any] = {"transactional_id": None, "transaction_timeout": 60_000}
    for producer_id, producer_epoch in ((5, 0), (5, -1), (-1, 3), (-1, -1), (-5, -5), (2**62, 32_767)):
        peer.call(
            "init_producer_id", version, producer_id=producer_id, producer_epoch=producer_epoch, **asked
        )


@scenario_for_each({"0": 0, "-1": -1, "max": 2**31 - 1})
def timeouts(peer: Peer, timeout_ms: int) -> None:
    peer.call("init_producer_id", 4, transactional_id=None, transaction_timeout=timeout_ms)


@scenario
def empty_transactional_id(peer: Peer) -> None:
    peer.call("init_producer_id", 4, transactional_id="", transaction_timeout=60_000)


@scenario
def over_two_connections(peer: Peer) -> None:
    other = peer.connect()
    asked: dict[str, Any] = {"transactional_id": None, "transaction_timeout": 60_000}
    peer.pipelined([("init_producer_id", 4, asked)] * 3)
    other.call("init_producer_id", 5, **asked)
