"""The gateways of a cluster, as one of them knows them, and orders that the metadata passes on to all."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import Final

import msgspec

from seqgate.gateway.admin.gateways.messages import (
    Drained,
    DrainRequest,
    GatewayRow,
    Gateways,
    GatewaysRequest,
    MovedPartition,
    MoveRequest,
    OtherAnswer,
    OtherAnswers,
    OthersRequest,
)
from seqgate.gateway.admin.operation import LiveGateway
from seqgate.gateway.admin.request import ControlAnswer, ControlError
from seqgate.gateway.metadata.decision import ApiError, Decision
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.leadership import NO_MOVE, led_by, order_move
from seqgate.gateway.metadata.membership import drain_broker
from seqgate.gateway.peer.peers import AsksPeers, PeerUnavailable
from seqgate.gateway.protocol.kafka_4_4 import QUESTION_API
from seqgate.gateway.protocol.messages import request_type
from seqgate.gateway.runtime.topics.metadata_log import Decide
from seqgate.log import LogError

ASK_TIMEOUT_S: Final = 10.0
"""Time for the answer of another gateway; a command waits longer for the answers of all."""


def gateways(gateway: LiveGateway, _: GatewaysRequest) -> Gateways:
    """Return the gateways of the cluster. Raises ControlError where there is no cluster."""
    services = gateway.services
    _check_cluster(gateway)
    image = services.topics.metadata_log.image
    return gateways_of(image, services.node.cluster_id)


async def move(gateway: LiveGateway, request: MoveRequest) -> MovedPartition:
    """Make a gateway the leader of a partition. Raises ControlError."""
    _check_cluster(gateway)
    topic = gateway.services.topics.metadata_log.image.topics_by_name.get(request.topic)
    if topic is None or request.partition not in topic.partitions:
        raise ControlError(f"there is no partition {request.topic}-{request.partition}")
    if topic.partitions[request.partition].leader != request.node_id:
        decide = partial(order_move, topic_id=topic.topic_id, index=request.partition, to=request.node_id)
        await _carry_out(gateway, decide)

    def leads(image: MetadataImage) -> bool:
        found = image.topics_by_id.get(topic.topic_id)
        return found is None or found.partitions[request.partition].leader == request.node_id

    if not await gateway.services.topics.waiters.until(leads, request.timeout_ms / 1000):
        raise ControlError(
            f"{request.topic}-{request.partition} has not moved in {request.timeout_ms / 1000:.0f} s; the "
            "move goes on, and the log of its leader says what it waits for"
        )
    return MovedPartition(request.topic, request.partition, request.node_id)


async def drain(gateway: LiveGateway, request: DrainRequest) -> Drained:
    """Order a gateway to hand over all partitions that it leads. Raises ControlError."""
    _check_cluster(gateway)
    await _carry_out(gateway, partial(drain_broker, node_id=request.node_id))
    await gateway.services.topics.waiters.until(
        lambda image: not led_by(image, request.node_id), request.timeout_ms / 1000
    )
    return Drained(request.node_id, led_by(gateway.services.topics.metadata_log.image, request.node_id))


async def ask_others(gateway: LiveGateway, request: OthersRequest) -> OtherAnswers:
    """Ask the other live gateways. Workers of one data directory have sockets of their own: none is asked."""
    services = gateway.services
    others = services.node.brokers.others() if services.partitions.log_directory.share.is_whole else ()
    asked = [node_id for node_id in others if node_id not in request.besides]
    told = await asyncio.gather(*(_ask(services.node.peers, each, request.question) for each in asked))
    return OtherAnswers(told)


async def _ask(peers: AsksPeers, node_id: int, question: str) -> OtherAnswer:
    describe = request_type(*QUESTION_API)(include_cluster_authorized_operations=False, question=question)
    try:
        told = await peers.ask(node_id, describe, timeout_s=ASK_TIMEOUT_S)
    except PeerUnavailable as error:
        return OtherAnswer(node_id, ControlAnswer(error=str(error)))
    if told.answer is None:
        return OtherAnswer(node_id, ControlAnswer(error=f"broker {node_id} is of an earlier release"))
    return OtherAnswer(node_id, msgspec.json.decode(told.answer, type=ControlAnswer))


def _check_cluster(gateway: LiveGateway) -> None:
    if gateway.services.node.brokers.is_alone:
        raise ControlError("this gateway serves alone: it was started without --cluster")


async def _carry_out(gateway: LiveGateway, decide: Decide[ApiError | None]) -> None:
    """Carry out a decision. Raises ControlError if it is refused, or the metadata can't be changed."""

    def decided(image: MetadataImage) -> Decision[ApiError | None]:
        return decide(image)

    try:
        refused = await gateway.services.topics.metadata_log.commit(decided)
    except LogError as error:
        raise ControlError(f"the metadata can't be changed: {error}") from error
    if refused is not None:
        raise ControlError(refused.message or refused.error_code.name)


# The list of gateways, from the metadata of a cluster.


def gateways_of(image: MetadataImage, cluster_id: str) -> Gateways:
    """Return the gateways that an image registers."""
    leaders: Counter[int] = Counter()
    preferred: Counter[int] = Counter()
    moving = 0
    for topic in image.topics_by_id.values():
        for partition in topic.partitions.values():
            leaders[partition.leader] += 1
            preferred[partition.replicas[0]] += 1
            moving += partition.next_leader != NO_MOVE
    live = set(image.brokers.live(-1)) if image.brokers.by_id else set()
    draining = image.brokers.draining()
    rows = []
    for node_id, broker in sorted(image.brokers.by_id.items()):
        state = "ended" if node_id not in live else "draining" if node_id in draining else "live"
        place = broker.end_points[0] if broker.end_points else None
        address = "-" if place is None else f"{place.host}:{place.port}"
        led = leaders[node_id] if node_id in live else 0
        rows.append(
            GatewayRow(node_id, address, broker.rack, state, broker.broker_epoch, led, preferred[node_id])
        )
    leaderless = sum(count for node_id, count in leaders.items() if node_id not in live)
    return Gateways(cluster_id, rows, leaderless, moving)
