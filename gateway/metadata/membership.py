"""Decisions about the gateways of a cluster: they register, and end.

The epoch of a broker is the number of its session, so a later session of a node has a higher one. Each
decision that takes a gateway away gives its partitions to live ones in the same change. Deciding again on a
newer image is safe: every decision names the session that it is about. Source: Kafka's ClusterControlManager,
ReplicationControlManager.handleBrokerFenced.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import count
from typing import Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.metadata.brokers import CLUSTER_VERSION_FEATURE
from seqgate.gateway.metadata.decision import ApiError, Decision
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.leadership import failover, redirected
from seqgate.gateway.metadata.records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    MetadataRecord,
    RegisterBrokerRecord,
)

LOWEST_NODE_ID: Final = 1
ANY_EPOCH: Final = -2
NOT_REGISTERED: Final = -1


ENDED_IDS_KEPT: Final = 100
"""Node ids of gateways that have ended and may return at their addresses. With more of these, a gateway at a
new address takes the id that registered first."""

Address = tuple[str, int]
"""The host and port at which clients reach a gateway."""


def free_node_id(
    image: MetadataImage, starting: Collection[int] = (), addresses: Collection[Address] = ()
) -> tuple[int, int]:
    """Return a node id without a live broker that is not among `starting`, and the epoch of its last
    registration: NOT_REGISTERED without any.

    A gateway gets the id that was last registered at one of its `addresses`, or else the lowest one that was
    never registered. Do not give it the id of another address: a client connects by the id to the address
    that it knows, and keeps the connection if the id moves. If the gateway of that address came back under
    another id, the client would ask the wrong gateway for ever.
    """
    brokers = image.brokers.by_id
    ended = [broker for broker in brokers.values() if broker.fenced and broker.broker_id not in starting]
    known_here = [
        broker
        for broker in ended
        if any((place.host, place.port) in addresses for place in broker.end_points)
    ]
    if known_here:
        node_id = max(known_here, key=_epoch).broker_id
    elif len(ended) > ENDED_IDS_KEPT:
        node_id = min(ended, key=_epoch).broker_id
    else:
        node_id = next(each for each in count(LOWEST_NODE_ID) if each not in starting and each not in brokers)
    return node_id, epoch_of(image, node_id)


def _epoch(broker: RegisterBrokerRecord) -> int:
    return broker.broker_epoch


def choose_node_id(
    image: MetadataImage,
    *,
    kept: int | None,
    died_here: Collection[int] = (),
    starting: Collection[int] = (),
    addresses: Collection[Address] = (),
) -> tuple[int, int]:
    """Return the node id of a gateway that none was set for, and the epoch of the id's last registration.
    `kept` is the id in its data directory, and `died_here` are the last sessions there. The gateway keeps
    its id unless another one is live under it by now. `starting` are the ids of gateways that are about
    to join, and `addresses` those at which clients will reach this one.
    """
    if kept is None:
        return free_node_id(image, starting, addresses)
    epoch = epoch_of(image, kept)
    if kept in starting or (image.brokers.is_current(kept, epoch) and epoch not in died_here):
        return free_node_id(image, starting, addresses)
    return kept, epoch


def epoch_of(image: MetadataImage, node_id: int) -> int:
    """Return the epoch of the broker's last registration, or NOT_REGISTERED."""
    broker = image.brokers.by_id.get(node_id)
    return NOT_REGISTERED if broker is None else broker.broker_epoch


def register_broker(
    image: MetadataImage, broker: RegisterBrokerRecord, *, replaces: int = ANY_EPOCH
) -> Decision[ApiError | None]:
    """Register a session of a gateway, and give it its share of the partitions that no live gateway leads.
    `replaces` is the epoch of the registration that the gateway knows of its node id: another one means that
    another gateway has taken the id meanwhile. The partitions of an earlier session of the node stay its own.
    """
    known = image.brokers.by_id.get(broker.broker_id)
    if known is not None and known.incarnation_id == broker.incarnation_id:
        return Decision((), None)
    refusal = _refusal(image, broker, replaces)
    if refusal is not None:
        return Decision((), refusal)
    others = {node_id for node_id in image.brokers.by_id if node_id != broker.broker_id}
    live = {node_id for node_id in others if not image.brokers.by_id[node_id].fenced} | {broker.broker_id}
    records: list[MetadataRecord] = [broker]
    versions = [image.brokers.by_id[node_id].cluster_version for node_id in live & others]
    records += _raised(image, [*versions, broker.cluster_version])
    records += failover(image, live, image.brokers.draining())
    return Decision(records, None)


def _refusal(image: MetadataImage, broker: RegisterBrokerRecord, replaces: int) -> ApiError | None:
    required = image.brokers.cluster_version
    if broker.cluster_version < required:
        text = (
            f"the cluster uses version {required} of its formats, and this release knows "
            f"{broker.cluster_version}; start the release that the other gateways run, or a later one"
        )
        return ApiError(ErrorCode.unsupported_version, text)
    known_epoch = epoch_of(image, broker.broker_id)
    if replaces not in {ANY_EPOCH, known_epoch}:
        text = f"another gateway has taken the node id {broker.broker_id} in session {known_epoch}"
        return ApiError(ErrorCode.duplicate_broker_registration, text)
    if known_epoch >= broker.broker_epoch:
        text = f"a later session, {known_epoch}, of node {broker.broker_id} is registered"
        return ApiError(ErrorCode.stale_broker_epoch, text)
    return None


def end_session(image: MetadataImage, node_id: int, broker_epoch: int) -> Decision[bool]:
    """Fence a broker, and give its partitions to live ones; the answer says whether this ended the session.
    Call this only after the seal: an unsealed gateway may go on to acknowledge records.
    """
    if not image.brokers.is_current(node_id, broker_epoch):
        return Decision((), False)
    live = set(image.brokers.live(node_id)) - {node_id}
    records: list[MetadataRecord] = [BrokerRegistrationChangeRecord(node_id, broker_epoch, fenced=1)]
    records += _raised(image, [image.brokers.by_id[other].cluster_version for other in live])
    draining = image.brokers.draining()
    records += failover(image, live, draining)
    records += redirected(image, live, draining)
    return Decision(records, True)


def _raised(image: MetadataImage, versions: Collection[int]) -> Iterator[FeatureLevelRecord]:
    """Yield the new version of the cluster's formats, if all live brokers know a newer one."""
    newest = min(versions, default=0)
    if newest > image.brokers.cluster_version:
        yield FeatureLevelRecord(CLUSTER_VERSION_FEATURE, newest)
