"""Tells members of share groups that asked the wrong gateway who leads a partition, and at which address.

Source: Kafka's KafkaApis.processShareFetchResponse, processShareAcknowledgeResponse.
"""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.coordinator.places import Place
from gateway.handlers.answering.api import RequestContext
from gateway.protocol.messages import build

_LED_ELSEWHERE: Final = frozenset((int(ErrorCode.not_leader_or_follower), int(ErrorCode.fenced_leader_epoch)))


def no_leader(module: ModuleType) -> Any:
    """Return the leader of a row that names none. Kafka sends zeros here, too."""
    return build(module.LeaderIdAndEpoch, leader_id=0, leader_epoch=0)


class ShareLeaders:
    """The leaders that one answer names."""

    def __init__(self, context: RequestContext[Any], module: ModuleType) -> None:
        """Begin without leaders. `module` has the classes of the answer."""
        self._brokers = context.node.brokers
        self._listener_name = context.listener_name
        self._module = module
        self._endpoints: dict[int, Any] = {}

    def named_in(self, place: Place, row: Any) -> Any:
        """Return the row, with the partition's leader if the row has an error about leadership."""
        codes = {int(row.error_code), int(getattr(row, "acknowledge_error_code", 0))}
        leader = None if codes.isdisjoint(_LED_ELSEWHERE) else self._leader_of(place)
        if leader is None:
            return row
        node_id, leader_epoch = leader
        named = build(self._module.LeaderIdAndEpoch, leader_id=node_id, leader_epoch=leader_epoch)
        return replace(row, current_leader=named)

    @property
    def endpoints(self) -> tuple[Any, ...]:
        """Return the addresses of the leaders that were named."""
        return tuple(self._endpoints.values())

    def _leader_of(self, place: Place) -> tuple[int, int] | None:
        leader = self._brokers.leader_in(place[0].bytes, place[1])
        broker = None if leader is None else self._brokers.find_live(leader[0], self._listener_name)
        if broker is not None:
            self._endpoints[broker.node_id] = build(
                self._module.NodeEndpoint,
                node_id=broker.node_id,
                host=broker.host,
                port=broker.port,
                rack=broker.rack,
            )
        return leader
