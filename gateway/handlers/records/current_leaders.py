"""Tells clients that asked the wrong gateway who leads a partition, and at which address (KIP-951)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, TypeVar

from kio.schema.errors import ErrorCode

from gateway.handlers.answering.api import RequestContext
from gateway.protocol.fetch_codec import FetchRow
from gateway.protocol.node_endpoints import NodeEndpoint
from gateway.protocol.produce_codec import ProduceRow

NOT_LEADER: Final = int(ErrorCode.not_leader_or_follower)
Row = TypeVar("Row", FetchRow, ProduceRow)


def name_leaders(
    context: RequestContext[Any],
    topics: Sequence[tuple[str | bytes, Sequence[Row]]],
    error_codes: Collection[int],
    *,
    to_follower: bool = False,
) -> tuple[Sequence[tuple[str | bytes, Sequence[Row]]], Sequence[NodeEndpoint]]:
    """Return the rows, with the leader in those that have one of the errors, and the addresses of these leaders.

    A follower has asked the leader, which does not know it as a replica. It learns the leader's node id and
    no address. Source: Kafka's KafkaApis.getCurrentLeader, handleFetchRequest.
    """
    brokers = context.node.brokers
    endpoints: dict[int, NodeEndpoint] = {}
    named = []
    for key, rows in topics:
        told = list(rows)
        for position, row in enumerate(rows):
            leader = brokers.leader_in(key, row.partition) if row.error_code in error_codes else None
            if leader is None:
                continue
            if leader[0] == context.node.node_id and row.error_code == NOT_LEADER and not to_follower:
                continue  # The records of the partition are not here yet: the client asks again later.
            told[position] = row._replace(current_leader=leader)
            if to_follower:
                continue
            broker = brokers.find_live(leader[0], context.listener_name)
            if broker is not None:
                endpoints[broker.node_id] = NodeEndpoint(*broker[:4])
        named.append((key, told))
    return named, list(endpoints.values())
