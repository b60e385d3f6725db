"""Takes the cut of a backup of a bucket: the ends of all write-ahead logs at one moment, while gateways run.

One gateway asks all others to hold their sessions, holds its own last, reads the end of the metadata, and
releases all. The cut is valid if every hold was in force until its release (`cluster/wal/backups.py`).

The gateway asks over connections of their own. On the shared ones a request such as WriteTxnMarkers waits for
what a held gateway does not confirm, and the answer to the hold would wait behind it.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping, Sequence

import msgspec

from seqgate.gateway.admin.backup.command import (
    BucketCut,
    CutRequest,
    HeldLog,
    HoldRequest,
    ReleasedLog,
    ReleaseRequest,
)
from seqgate.gateway.admin.client import answer_of
from seqgate.gateway.admin.cluster.gateways import ASK_TIMEOUT_S, ask_one
from seqgate.gateway.admin.operation import LiveGateway
from seqgate.gateway.admin.request import A, ControlError, Request
from seqgate.gateway.cluster.objects.objects import Refused, StoreFailed
from seqgate.gateway.cluster.wal.backups import LONGEST_HOLD_S, HoldRefused, SessionHolds
from seqgate.gateway.peer.peers import Peers

logger = logging.getLogger(__name__)


def hold(gateway: LiveGateway, request: HoldRequest) -> HeldLog:
    """Hold the session of this gateway. Raises ControlError."""
    try:
        return HeldLog(*_holds(gateway).begin(request.backup))
    except HoldRefused as error:
        raise ControlError(str(error)) from error


def release(gateway: LiveGateway, request: ReleaseRequest) -> ReleasedLog:
    """Let the session of this gateway confirm again. Raises ControlError."""
    return ReleasedLog(_holds(gateway).end(request.backup))


async def cut(gateway: LiveGateway, _: CutRequest) -> BucketCut:
    """Hold all gateways of the cluster for a moment, and return where they stood. Raises ControlError. What
    may succeed at another try is no error: the answer says why there is no cut.
    """
    holds = _holds(gateway)
    request = HoldRequest(uuid.uuid4().hex)
    peers = gateway.services.node.peers.apart()
    try:
        others = gateway.services.node.brokers.others()
        # A release of nothing opens the connections. If a gateway does not answer it, none is held.
        missing = (await _asked(peers, others, ReleaseRequest(request.backup), ASK_TIMEOUT_S))[1]
        if missing:
            return BucketCut(0, 0, [], "; ".join(missing), has_held=False)
        return await _cut(gateway, holds, peers, others, request)
    finally:
        await peers.close()


async def _cut(
    gateway: LiveGateway, holds: SessionHolds, peers: Peers, others: Sequence[int], request: HoldRequest
) -> BucketCut:
    refusal: str | None = None
    try:
        ends, metadata_end = await _held(holds, peers, others, request)
        taken_ms = gateway.services.node.clock.now_ms()
    except (ControlError, HoldRefused, Refused, StoreFailed, TimeoutError) as error:
        refusal = str(error) or "the store does not answer in time"
    finally:
        is_intact = holds.end(request.backup)
        told, missing = await _asked(peers, others, ReleaseRequest(request.backup), LONGEST_HOLD_S)
    if refusal is None:
        late = [node_id for node_id, each in told.items() if not each.is_intact]
        if missing or late or not is_intact:
            refusal = "; ".join(missing) or "the gateways could not be held long enough at the same time"
    if refusal is not None:
        return BucketCut(0, 0, [], refusal)
    logger.info("backup: %d gateways stood still for a moment", len(ends))
    return BucketCut(taken_ms, metadata_end, ends)


async def _held(
    holds: SessionHolds, peers: Peers, others: Sequence[int], request: HoldRequest
) -> tuple[list[HeldLog], int]:
    """Hold all gateways; return the ends of their logs, and that of the metadata at the same moment. Raises
    ControlError, HoldRefused, Refused, StoreFailed, TimeoutError.
    """
    told, missing = await _asked(peers, others, request, LONGEST_HOLD_S)
    if missing:
        raise ControlError("; ".join(missing))
    own = HeldLog(*holds.begin(request.backup))
    async with asyncio.timeout(LONGEST_HOLD_S):
        return [own, *told.values()], await holds.metadata_end()


async def _asked(
    peers: Peers, nodes: Sequence[int], request: Request[A], timeout_s: float
) -> tuple[Mapping[int, A], list[str]]:
    """Return the answers of gateways by node id, and a sentence about each that gave none."""
    line = msgspec.json.encode(request).decode()
    answers = await asyncio.gather(*(ask_one(peers, each, line, timeout_s) for each in nodes))
    told: dict[int, A] = {}
    missing = []
    for other in answers:
        try:
            told[other.node_id] = answer_of(other.answer, request)
        except ControlError as error:
            missing.append(f"the gateway on node {other.node_id} gave no answer: {error}")
    return told, missing


def _holds(gateway: LiveGateway) -> SessionHolds:
    holds = gateway.services.upkeep.holds
    if holds is None:
        raise ControlError("this gateway has no bucket: it was started without --cluster")
    return holds
