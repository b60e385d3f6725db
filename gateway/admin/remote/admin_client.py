"""kafka-python's admin client, which also reads the clients of producers.

Gateways name the client of each producer in a tagged field of their answers (`CLIENT_TAG`). kafka-python
decodes unknown tagged fields, and drops them where it makes its own rows of an answer: here they are kept.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kafka.admin import KafkaAdminClient
from kafka.structs import TopicPartition

from seqgate.gateway.protocol.frames import MalformedRequest, read_unsigned_varint
from seqgate.gateway.protocol.kafka_4_4 import CLIENT_TAG
from seqgate.gateway.security.principals import ClientIdentity

_NAME: Final = f"_{CLIENT_TAG}"
"""The name that kafka-python gives the tagged field."""


class NamedState(NamedTuple):
    """A producer or transaction of kafka-python, and the client of its producer; None: nobody knows it."""

    state: Any
    client: ClientIdentity | None


class AdminClient(KafkaAdminClient):  # type: ignore[misc]  # kafka-python has no types
    """Keeps beside each producer and transaction the client of the producer."""

    def _describe_producers_process_response(self, response: Any) -> dict[TopicPartition, list[NamedState]]:
        found = super()._describe_producers_process_response(response)
        named = {}
        for topic in response.topics:
            for partition in topic.partitions:
                place = TopicPartition(topic.name, partition.partition_index)
                clients = map(_client, partition.active_producers)
                named[place] = list(map(NamedState, found[place].active_producers, clients))
        return named

    def _describe_transactions_process_response(
        self, response: Any, coordinator_id: int
    ) -> dict[str, NamedState]:
        found = super()._describe_transactions_process_response(response, coordinator_id)
        rows = response.transaction_states
        return {row.transactional_id: NamedState(found[row.transactional_id], _client(row)) for row in rows}


def _client(row: Any) -> ClientIdentity | None:
    raw = (row.unknown_tags or {}).get(_NAME)
    if raw is None:
        return None
    try:
        _, start = read_unsigned_varint(raw, 0)
    except MalformedRequest:
        return None  # another server has something else in this tag
    return ClientIdentity.from_json(raw[start:])
