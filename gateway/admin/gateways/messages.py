"""The requests about the gateways of a cluster, and what `seqgate cluster` prints of them with --json."""

from __future__ import annotations

from typing import Annotated

import msgspec

from seqgate.gateway.admin.request import ControlAnswer, Request
from seqgate.gateway.admin.tables import UNKNOWN, Column, count, number


class GatewayRow(msgspec.Struct, frozen=True):
    """A gateway. `state` is live, draining or ended; `session` is None where a cluster does not report it.
    `leaders` are the partitions that it leads, `preferred` those that prefer it as the leader.
    """

    node_id: Annotated[int, Column("node", number)]
    address: Annotated[str, Column("address")]
    rack: Annotated[str | None, Column("rack", none="")]
    state: Annotated[str, Column("state")]
    session: Annotated[int | None, Column("session", number, UNKNOWN)]
    leaders: Annotated[int, Column("leads", count)]
    preferred: Annotated[int, Column("preferred by", count)]


class Gateways(msgspec.Struct, frozen=True):
    """The gateways; `leaderless` counts partitions without a live leader, `moving` those to be moved."""

    cluster_id: str
    gateways: list[GatewayRow]
    leaderless: int
    moving: int | None


class GatewaysRequest(Request[Gateways], tag="cluster.gateways"):
    """The gateways of the cluster, and how many partitions each leads."""


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
    again. Answers when it leads nothing any more, or with what is left after `timeout_ms`.
    """

    node_id: int
    timeout_ms: int = 30_000


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
