"""The gateways of a cluster: who leads how much, moves of partitions, and drained gateways."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec.structs import replace

from seqgate.gateway.admin.commands import MOST_INT32, MOST_S, Output, argument, asks, option, stop
from seqgate.gateway.admin.options import (
    Asker,
    CommandConfig,
    ConfigFile,
    Consented,
    DataDir,
    Opened,
    OtherCluster,
    gateway_or_cluster,
)
from seqgate.gateway.admin.request import ClusterAnswers, ControlAnswer, ControlError, Request
from seqgate.gateway.admin.tables import UNKNOWN, Block, Column, count, counted, number, table

if TYPE_CHECKING:
    from seqgate.gateway.admin.operation import LiveGateway
    from seqgate.gateway.admin.remote.cluster import Cluster
    from seqgate.gateway.metadata.decision import ApiError
    from seqgate.gateway.metadata.image import MetadataImage
    from seqgate.gateway.peer.peers import AsksPeers
    from seqgate.gateway.runtime.topics.metadata_log import Decide

# The requests about gateways, and what `seqgate cluster` prints of them with --json.


class GatewayRow(msgspec.Struct, frozen=True):
    """A gateway. `state` is ended for one whose broker is fenced, draining for one in a controlled shutdown,
    else live; `session` is None where a cluster does not report it. `leaders` are the partitions that it
    leads, `preferred` those that prefer it as the leader. Workers of one data directory can't be drained.
    """

    node_id: Annotated[int, Column("node", number)]
    address: Annotated[str, Column("address")]
    rack: Annotated[str | None, Column("rack", none="")]
    state: Annotated[str, Column("state")]
    session: Annotated[int | None, Column("session", number, UNKNOWN)]
    leaders: Annotated[int, Column("leads", count)]
    preferred: Annotated[int, Column("preferred by", count)]
    can_drain: bool = True


class Gateways(msgspec.Struct, frozen=True):
    """The gateways; `leaderless` counts partitions without a live leader, `moving` those to be moved."""

    cluster_id: str
    gateways: list[GatewayRow]
    leaderless: int
    moving: int | None


class GatewaysRequest(Request[Gateways], tag="cluster.gateways"):
    """The gateways of the cluster, and how many partitions each leads."""

    network_right = "DESCRIBE"


class MovedPartition(msgspec.Struct, frozen=True):
    """A partition, and the node id of its leader now."""

    topic: str
    partition: int
    leader: int


class MoveRequest(Request[MovedPartition], tag="cluster.move"):
    """Make a gateway a partition's leader and preferred one. Answers when it leads; fails at `timeout_ms`."""

    topic: str
    partition: int
    node_id: int
    timeout_ms: int = 30_000


class Drained(msgspec.Struct, frozen=True):
    """A gateway that is drained, and how many partitions it still leads."""

    node_id: int
    leaders: int


class DrainRequest(Request[Drained], tag="cluster.drain"):
    """Order a gateway to hand over all partitions that it leads. New partitions avoid it until it starts
    again, or the order is taken back, which ends this request with an error. Answers when it leads nothing
    any more, or with what is left after `timeout_ms`.
    """

    node_id: int
    timeout_ms: int = 30_000


class Undrained(msgspec.Struct, frozen=True):
    """A gateway that gets partitions again, and how many it leads now."""

    node_id: int
    leaders: int


class UndrainRequest(Request[Undrained], tag="cluster.undrain"):
    """Take back the drain of a live gateway. It keeps what it still leads, and gets partitions again."""

    node_id: int


class OtherAnswer(msgspec.Struct, frozen=True):
    """The answer of another gateway; one that gave none has the reason as its error."""

    node_id: int
    answer: ControlAnswer


class OtherAnswers(msgspec.Struct, frozen=True):
    """The answers of other gateways, in the order of their node ids; none where this one serves alone."""

    answers: list[OtherAnswer]


class OthersRequest(Request[OtherAnswers], tag="cluster.ask"):
    """Ask the other gateways of the cluster, but for those of `besides`, which the asker reaches itself.
    `question` is a request that every gateway answers for itself, as JSON.
    """

    question: str
    besides: list[int]


# The commands, which `admin/cluster/command.py` adds to `seqgate cluster`.

_PARTITION: Final = re.compile(r"(?P<topic>.+)-(?P<index>[0-9]{1,9})")
Timeout = Annotated[
    int,
    option(
        "--timeout", "SECONDS", "How long to wait until it is done.", show_default=True, min=1, max=MOST_S
    ),
]


def _reached(
    bootstrap: OtherCluster = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    config_file: ConfigFile = None,
) -> Opened[Asker]:
    """Return what `gateway_or_cluster` does, for commands with a --timeout of their own."""
    return gateway_or_cluster(bootstrap, command_config, data_dir, config_file)


NodeId = Annotated[int, argument("NODE", "The node id of a gateway.", min=0, max=MOST_INT32)]


@asks(gateway_or_cluster)
def list_gateways(opened: Opened[Asker]) -> Output:
    """List the gateways of a cluster: which of them are live, and how many partitions each leads."""
    with opened as client:
        answer = client.ask(GatewaysRequest())
    return Output(answer, listing(answer))


def listing(answer: Gateways) -> Iterator[Block]:
    """Yield the table of gateways, and a line for what is not in order."""
    yield table(GatewayRow, answer.gateways)
    if answer.moving:
        yield f"{counted(answer.moving, 'partition')} to be handed over."
    if answer.leaderless:
        yield f"{counted(answer.leaderless, 'partition')} without a live leader."


@asks(_reached)
def move(
    opened: Opened[Asker],
    *,
    partition: str = argument("TOPIC-PARTITION", "The partition, such as orders-3."),
    node_id: NodeId,
    timeout_s: Timeout = 30,
) -> Output:
    """Make a gateway the leader of a partition.

    The present leader makes all records durable in the bucket and hands the partition over; producers and
    consumers follow by themselves. The partition prefers its new leader from now on.
    """
    named = _PARTITION.fullmatch(partition)
    if named is None:
        raise stop(f"{partition} is no partition; name a topic and a number, such as orders-3", 2)
    request = MoveRequest(named["topic"], int(named["index"]), node_id, timeout_s * 1000)
    with opened as client:
        answer = client.ask(request)
    return Output(answer, [f"Node {answer.leader} leads {answer.topic}-{answer.partition}."])


@asks(_reached)
def drain(opened: Opened[Asker], node_id: NodeId, *, timeout_s: Timeout = 30, consent: Consented) -> Output:
    """Let a gateway hand over all partitions that it leads, and keep new ones away from it. Says how many it
    leads, and asks.

    Asks the gateway that runs on --data-dir, or with --bootstrap a gateway on any machine; it can be any
    gateway of the cluster. A drained gateway goes on to serve clients, so that it can be stopped without a
    pause for anyone; when it starts again, or after `seqgate cluster undrain`, it takes part as before.

    Exits with 1 when the gateway still leads partitions after the timeout; it goes on to hand them over. With
    --json the command never asks: without --yes it only reports how many partitions the gateway leads.
    """
    with opened as client:

        def drain_it(execute: bool) -> Drained:
            if execute:
                return client.ask(DrainRequest(node_id, timeout_s * 1000))
            return planned_drain(client.ask(GatewaysRequest()).gateways, node_id)

        def plan(planned: Drained) -> list[Block]:
            would = (
                f"would hand over {counted(planned.leaders, 'partition')}, and lead none until its restart "
                "or an undrain"
            )
            return [f"Node {node_id} {would}."]

        answer = consent.plan_ask_and_do(drain_it, plan, "Drain it?")
    if consent.is_planned:
        return Output(answer, plan(answer))
    left = f"still leads {counted(answer.leaders, 'partition')}, and hands them over"
    text = f"Node {node_id} {left if answer.leaders else 'leads nothing any more'}."
    return Output(answer, [text], code=1 if answer.leaders else 0)


def planned_drain(gateways: Sequence[GatewayRow], node_id: int) -> Drained:
    """Return what the drain of a gateway would begin with. Raises ControlError as the drain would."""
    live = {row.node_id: row for row in gateways if row.state != "ended"}
    if node_id not in live:
        raise ControlError(_NOT_DRAINED["broker_id_not_registered"].format(node_id=node_id))
    if not live[node_id].can_drain:
        raise ControlError(_NOT_DRAINED["policy_violation"])
    if not any(row.state == "live" for row in live.values() if row.node_id != node_id):
        raise ControlError(_NOT_DRAINED["invalid_request"].format(node_id=node_id))
    return Drained(node_id, live[node_id].leaders)


@asks(gateway_or_cluster)
def undrain(opened: Opened[Asker], node_id: NodeId) -> Output:
    """Take back the drain of a gateway that still runs: it keeps what it leads, and gets partitions again.

    Asks as `seqgate cluster drain` does. A gateway that is not drained stays as it is. What the gateway has
    handed over comes back as after a start, when the gateways spread their partitions
    (seqgate.cluster.balance.enable), or with `seqgate cluster move`.
    """
    with opened as client:
        answer = client.ask(UndrainRequest(node_id))
    text = f"Node {answer.node_id} takes part again, and leads {counted(answer.leaders, 'partition')}."
    return Output(answer, [text])


# Over the Kafka protocol: any gateway's answer. Every function raises ControlError.

_PREFERRED: Final = 0
_ASK_AGAIN_S: Final = 0.2
"""The time between two questions whether a drained gateway leads nothing any more."""
_ANY_EPOCH: Final = -1
"""The epoch of an order: only the gateway itself must name that of its session."""
_WAITING_EPOCH: Final = -2
"""The epoch of a request that orders nothing and waits for the end of a drain."""
_NOT_DRAINED: Final = {
    "broker_id_not_registered": "no live gateway has the node id {node_id}",
    "invalid_request": "no other live gateway can take the partitions of node {node_id}",
    "policy_violation": "workers of one data directory are not drained, because they stop together",
    "no_reassignment_in_progress": "node {node_id} is not drained any more: somebody has taken that back, or "
    "the node has started again",
    "stale_broker_epoch": "the gateway at {address} is of an earlier release, which takes no drain back: ask "
    "a newer one, or restart node {node_id}",
}


def gateways_remote(cluster: Cluster, asked: GatewaysRequest) -> Gateways:
    """Return the gateways of the cluster, those that have ended, too, at the addresses that clients use.

    A gateway that the user may ask about itself (DESCRIBE on the cluster) also tells who is drained. Kafka's
    answers don't: a broker in a controlled shutdown is fenced only when it has ended.
    """
    from seqgate.gateway.admin.remote.broker import TIMEOUT_S, metadata  # noqa: PLC0415 - slow
    from seqgate.gateway.admin.remote.operations import told_by  # noqa: PLC0415

    described = cluster.ask_reached(cluster.brokers_request())
    _check(described.error_code, described.error_message, "the gateways can't be listed")
    with suppress(ControlError):
        told = told_by(cluster.reached, asked)
        if told.gateways:
            places = {int(each.broker_id): f"{each.host}:{each.port}" for each in described.brokers}
            rows = [replace(row, address=places.get(row.node_id, row.address)) for row in told.gateways]
            return replace(told, gateways=rows)
    found = metadata(cluster.reached, TIMEOUT_S)
    partitions = [row for topic in found.topics for row in topic.partitions]
    leaders = Counter(int(row.leader_id) for row in partitions)
    preferred = Counter(int(row.replica_nodes[0]) for row in partitions if row.replica_nodes)
    listed = [
        GatewayRow(
            node_id=int(broker.broker_id),
            address=f"{broker.host}:{broker.port}",
            rack=broker.rack or None,
            state="ended" if getattr(broker, "is_fenced", False) else "live",
            session=None,
            leaders=leaders[int(broker.broker_id)],
            preferred=preferred[int(broker.broker_id)],
        )
        for broker in sorted(described.brokers, key=lambda broker: int(broker.broker_id))
    ]
    return Gateways(str(described.cluster_id), listed, leaders[-1], None)


def move_remote(cluster: Cluster, request: MoveRequest) -> MovedPartition:
    """Make a gateway the preferred leader of a partition by AlterPartitionReassignments, and elect it."""
    from datetime import timedelta  # noqa: PLC0415 - slow to import

    from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions  # noqa: PLC0415
    from kio.schema.errors import ErrorCode  # noqa: PLC0415
    from kio.schema.types import TopicName  # noqa: PLC0415
    from kio.static.primitive import i8, i32, i32Timedelta  # noqa: PLC0415

    from seqgate.gateway.admin.remote.broker import TIMEOUT_S, metadata  # noqa: PLC0415

    place = f"{request.topic}-{request.partition}"
    deadline_s = time.monotonic() + request.timeout_ms / 1000
    replicas = _replicas(metadata(cluster.reached, TIMEOUT_S).topics, request)
    _refuse_drained(cluster, request)
    # A gateway that was removed from the cluster may still be a replica, and a reassignment to it is refused.
    kept = _registered(cluster, replicas)
    wanted = (request.node_id, *(node for node in kept if node != request.node_id))[: len(replicas)]
    _reassign(cluster, request, wanted)
    left_ms = max(1, round((deadline_s - time.monotonic()) * 1000))
    limit = i32Timedelta.parse(timedelta(milliseconds=left_ms))
    elect = ElectLeadersRequest(
        election_type=i8(_PREFERRED),
        topic_partitions=(
            TopicPartitions(topic=TopicName(request.topic), partitions=(i32(request.partition),)),
        ),
        timeout=limit,
    )
    answer = cluster.ask_reached(elect, timeout_s=TIMEOUT_S + request.timeout_ms / 1000)
    _check(answer.error_code, None, f"{place} can't be moved")
    for topic in answer.replica_election_results:
        for row in topic.partition_result:
            if row.error_code not in {ErrorCode.none, ErrorCode.election_not_needed}:
                _check(row.error_code, row.error_message, f"{place} can't be moved")
    return MovedPartition(request.topic, request.partition, request.node_id)


def _refuse_drained(cluster: Cluster, request: MoveRequest) -> None:
    """Raise ControlError if the new leader is drained, and does not lead the partition already. A drained
    gateway would become the preferred replica before the election is refused. Nobody tells a user without
    DESCRIBE on the cluster who is drained.
    """
    from seqgate.gateway.admin.remote.operations import told_by  # noqa: PLC0415 - slow to import

    rows: Sequence[GatewayRow] = ()
    with suppress(ControlError):
        rows = told_by(cluster.reached, GatewaysRequest()).gateways
    place, node_id = (request.topic, request.partition), request.node_id
    is_drained = any((row.node_id, row.state) == (node_id, "draining") for row in rows)
    if is_drained and cluster.leaders().get(place) != node_id:
        raise ControlError(
            f"{request.topic}-{request.partition} can't be moved: node {node_id} is drained, and leads no "
            "more partitions"
        )


def drain_remote(cluster: Cluster, request: DrainRequest) -> Drained:
    """Order a gateway to hand over all partitions that it leads, by BrokerHeartbeat."""
    node_id, deadline_s = request.node_id, time.monotonic() + request.timeout_ms / 1000
    ask = _heartbeats(cluster, node_id, is_drained=True)
    has_ended = ask(_ANY_EPOCH).should_shut_down
    while not has_ended:
        if time.monotonic() >= deadline_s:
            return Drained(node_id, _led(cluster, node_id))
        time.sleep(_ASK_AGAIN_S)
        # another order would begin the drain anew where somebody has taken it back meanwhile
        has_ended = ask(_WAITING_EPOCH).should_shut_down
    return Drained(node_id, 0)


def undrain_remote(cluster: Cluster, request: UndrainRequest) -> Undrained:
    """Take back the drain of a gateway, by BrokerHeartbeat."""
    _heartbeats(cluster, request.node_id, is_drained=False)(_ANY_EPOCH)
    return Undrained(request.node_id, _led(cluster, request.node_id))


def _heartbeats(cluster: Cluster, node_id: int, *, is_drained: bool) -> Callable[[int], Any]:
    """Return a function that sends a heartbeat with a given epoch, and returns the answer. With `is_drained`
    the heartbeat orders the drain of the gateway, otherwise it takes the drain back.
    """
    from dataclasses import replace as with_fields  # noqa: PLC0415 - slow to import

    from kio.schema.broker_heartbeat.v0.request import BrokerHeartbeatRequest  # noqa: PLC0415
    from kio.schema.errors import ErrorCode  # noqa: PLC0415
    from kio.schema.types import BrokerId  # noqa: PLC0415
    from kio.static.primitive import i64  # noqa: PLC0415

    from seqgate.gateway.admin.remote.cluster import refusal  # noqa: PLC0415

    asked = BrokerHeartbeatRequest(
        broker_id=BrokerId(node_id),
        broker_epoch=i64(_ANY_EPOCH),
        current_metadata_offset=i64(-1),  # none: the gateway that answers need not catch up
        want_fence=False,
        want_shut_down=is_drained,
    )
    if not cluster.serves(asked.__api_key__, 0):
        # A broker that does not know the request closes the connection.
        raise ControlError(
            f"the cluster at {cluster.reached.shown} drains no gateway over the network: it is one gateway "
            "alone, an older release, or no Seqgate"
        )

    def ask(epoch: int) -> Any:
        answer = cluster.ask_reached(with_fields(asked, broker_epoch=i64(epoch)))
        if answer.error_code == ErrorCode.stale_broker_epoch and epoch == _WAITING_EPOCH:
            return ask(_ANY_EPOCH)  # a gateway of an earlier release
        if answer.error_code:
            what = "be drained" if is_drained else "take part again"
            raise ControlError(
                _NOT_DRAINED.get(
                    ErrorCode(answer.error_code).name, f"node {node_id} can't {what}: {{reason}}"
                ).format(node_id=node_id, reason=refusal(answer.error_code), address=cluster.reached.shown)
            )
        return answer

    return ask


def _led(cluster: Cluster, node_id: int) -> int:
    return sum(leader == node_id for leader in cluster.leaders().values())


def _replicas(topics: Sequence[Any], request: MoveRequest) -> list[int]:
    for topic in topics:
        for row in topic.partitions:
            if (topic.name, row.partition_index) == (request.topic, request.partition):
                return [int(node_id) for node_id in row.replica_nodes]
    raise ControlError(f"there is no partition {request.topic}-{request.partition}")


def _registered(cluster: Cluster, replicas: list[int]) -> list[int]:
    """Return those of the replicas that are registered; all where the cluster lists only live brokers, as
    Kafka does before 4.0: a broker that has ended must stay a replica.
    """
    if not cluster.serves(60, 2):
        return replicas
    described = cluster.ask_reached(cluster.brokers_request())
    _check(described.error_code, described.error_message, "the brokers can't be listed")
    known = {int(broker.broker_id) for broker in described.brokers}
    return [node_id for node_id in replicas if node_id in known]


def _reassign(cluster: Cluster, request: MoveRequest, replicas: tuple[int, ...]) -> None:
    from kio.schema.alter_partition_reassignments.v0 import request as asked  # noqa: PLC0415 - slow
    from kio.schema.types import BrokerId, TopicName  # noqa: PLC0415
    from kio.static.primitive import i32  # noqa: PLC0415

    row = asked.ReassignablePartition(
        partition_index=i32(request.partition), replicas=tuple(BrokerId(node) for node in replicas)
    )
    answer = cluster.ask_reached(
        asked.AlterPartitionReassignmentsRequest(
            topics=(asked.ReassignableTopic(name=TopicName(request.topic), partitions=(row,)),)
        )
    )
    what = f"{request.topic}-{request.partition} can't be moved"
    _check(answer.error_code, answer.error_message, what)
    for topic in answer.responses:
        for partition in topic.partitions:
            _check(partition.error_code, partition.error_message, what)


def _check(code: int, message: Any, what: str) -> None:
    if code:
        from seqgate.gateway.admin.remote.cluster import refusal  # noqa: PLC0415 - slow to import

        raise ControlError(f"{what}: {message or refusal(code)}")


OPERATIONS: Final[ClusterAnswers] = {
    GatewaysRequest: gateways_remote,
    MoveRequest: move_remote,
    DrainRequest: drain_remote,
    UndrainRequest: undrain_remote,
}


# In the gateway: its answers on the control socket, and orders that the metadata passes on to all.

ASK_TIMEOUT_S: Final = 10.0
"""Time for the answer of another gateway; a command waits longer for the answers of all."""


def gateways_live(gateway: LiveGateway, _: GatewaysRequest) -> Gateways:
    """Return the gateways of the cluster. Raises ControlError where there is no cluster."""
    services = gateway.services
    _check_cluster(gateway)
    image = services.topics.metadata_log.image
    return gateways_of(image, services.node.cluster_id)


async def move_live(gateway: LiveGateway, request: MoveRequest) -> MovedPartition:
    """Make a gateway the leader of a partition. Raises ControlError."""
    from seqgate.gateway.metadata.leadership import order_move  # noqa: PLC0415 - slow to import

    _check_cluster(gateway)
    topic = gateway.services.topics.metadata_log.image.topics_by_name.get(request.topic)
    if topic is None or request.partition not in topic.partitions:
        raise ControlError(f"there is no partition {request.topic}-{request.partition}")
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
    if topic.topic_id not in gateway.services.topics.metadata_log.image.topics_by_id:
        raise ControlError(f"the topic {request.topic} was deleted before its partition moved")
    return MovedPartition(request.topic, request.partition, request.node_id)


async def drain_live(gateway: LiveGateway, request: DrainRequest) -> Drained:
    """Order a gateway to hand over all partitions that it leads. Raises ControlError, also where somebody
    takes the order back meanwhile.
    """
    from seqgate.gateway.handlers.admin.brokers import drain_broker  # noqa: PLC0415 - slow to import
    from seqgate.gateway.metadata.leadership import led_by  # noqa: PLC0415

    _check_cluster(gateway)
    node_id, topics = request.node_id, gateway.services.topics
    await _carry_out(gateway, partial(drain_broker, node_id=node_id))
    await topics.waiters.until(
        lambda image: not image.brokers.is_drained(node_id) or not led_by(image, node_id),
        request.timeout_ms / 1000,
    )
    image = topics.metadata_log.image
    if not image.brokers.is_drained(node_id):
        raise ControlError(_NOT_DRAINED["no_reassignment_in_progress"].format(node_id=node_id))
    return Drained(node_id, led_by(image, node_id))


async def undrain_live(gateway: LiveGateway, request: UndrainRequest) -> Undrained:
    """Take back the drain of a gateway. Raises ControlError."""
    from seqgate.gateway.handlers.admin.brokers import undrain_broker  # noqa: PLC0415 - slow to import
    from seqgate.gateway.metadata.leadership import led_by  # noqa: PLC0415

    _check_cluster(gateway)
    await _carry_out(gateway, partial(undrain_broker, node_id=request.node_id))
    return Undrained(request.node_id, led_by(gateway.services.topics.metadata_log.image, request.node_id))


async def ask_others(gateway: LiveGateway, request: OthersRequest) -> OtherAnswers:
    """Ask the other live gateways. Workers of one data directory have sockets of their own: none is asked."""
    import asyncio  # noqa: PLC0415 - slow to import

    services = gateway.services
    others = services.node.brokers.others() if services.partitions.log_directory.share.is_whole else ()
    asked = [node_id for node_id in others if node_id not in request.besides]
    told = await asyncio.gather(*(ask_one(services.node.peers, each, request.question) for each in asked))
    return OtherAnswers(told)


async def ask_one(
    peers: AsksPeers, node_id: int, question: str, timeout_s: float = ASK_TIMEOUT_S
) -> OtherAnswer:
    """Ask one other gateway; `question` is a request of the control socket, as JSON."""
    from seqgate.gateway.peer.peers import PeerUnavailable  # noqa: PLC0415 - slow to import
    from seqgate.gateway.protocol.kafka_4_4 import QUESTION_API  # noqa: PLC0415
    from seqgate.gateway.protocol.messages import request_type  # noqa: PLC0415

    describe = request_type(*QUESTION_API)(include_cluster_authorized_operations=False, question=question)
    try:
        told = await peers.ask(node_id, describe, timeout_s=timeout_s)
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
    from seqgate.log import LogError  # noqa: PLC0415 - slow to import

    try:
        refused = await gateway.services.topics.metadata_log.commit(decide)
    except LogError as error:
        raise ControlError(f"the metadata can't be changed: {error}") from error
    if refused is not None:
        raise ControlError(refused.message or refused.error_code.name)


# The list of gateways, from the metadata of a cluster.


def gateways_of(image: MetadataImage, cluster_id: str) -> Gateways:
    """Return the gateways that an image registers."""
    from seqgate.gateway.metadata.leadership import NO_MOVE  # noqa: PLC0415 - slow to import

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
            GatewayRow(
                node_id,
                address,
                broker.rack,
                state,
                broker.broker_epoch,
                led,
                preferred[node_id],
                can_drain=bool(broker.cluster_version),  # as `drain_broker` decides
            )
        )
    leaderless = sum(count for node_id, count in leaders.items() if node_id not in live)
    return Gateways(cluster_id, rows, leaderless, moving)
