"""AddPartitionsToTxn (key 24, versions 0–5): announce partitions to which a transaction is about to write.
Rights: `WRITE` on the transactional id (up to v3); `WRITE` on the topic; `CLUSTER_ACTION` on the cluster
(from v4 on).

    v0–v3   one transaction, sent by a client
    v4, v5  several, sent by Kafka's brokers; `verify_only` asks whether partitions take part and adds none

All partitions of a transaction are added, or none: when one does not exist or the client may not write to it,
the others are not attempted. `add_partitions` in `coordinator/transaction/rules.py` decides, and
`check_partition` for `verify_only`. Source: Kafka's KafkaApis.handleAddPartitionsToTxnRequest.

AddOffsetsToTxn (key 25, versions 0–4): announce that the transaction will commit offsets of a group. Rights:
`WRITE` on the transactional id; `READ` on the group.

The partition of `__consumer_offsets` that holds the group takes part in the transaction from then on
(`handle_offsets` in `handlers/transactions/add_to_txn.py`). `add_partitions` in
`coordinator/transaction/rules.py` decides whether the transaction may take it. Source: Kafka's
KafkaApis.handleAddOffsetsToTxnRequest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.offsets import is_name_group
from seqgate.gateway.coordinator.places import TopicPartition
from seqgate.gateway.coordinator.transaction.rules import (
    VERSION_2,
    Producer,
    TransactionRefused,
    check_partition,
)
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.rights import NOTHING, refused_topics
from seqgate.gateway.handlers.transactions.end_txn import error_code_for, refuse_late
from seqgate.gateway.metadata.image import INTERNAL_TOPICS, OFFSETS_TOPIC
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.services import CoordinatorServices, Services
from seqgate.gateway.security.acls.access import Operation

FIRST_WITH_FENCED: Final = 2
FIRST_OF_BROKERS: Final = 4
FIRST_OF_CLIENTS_THAT_ADD_BY_PRODUCE: Final = 5

Errors = dict[TopicPartition, ErrorCode]


async def handle_partitions(context: RequestContext[Services], request: Any) -> Any:
    """Add or verify the partitions durably, transaction by transaction."""
    version = context.api_version
    if version < FIRST_OF_BROKERS:
        producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        topics = request.v3_and_below_topics
        transactional_id = request.v3_and_below_transactional_id
        if context.may_transactional_id(Operation.WRITE, transactional_id):
            hidden = await refused_topics(context, Operation.WRITE, (topic.name for topic in topics))
            refuse_late(context.services.coordinators.transactions.connections, context.peer, producer)
            errors = _unknown(context, topics, hidden)
            errors = errors or await _add(context, transactional_id, producer, topics)
        else:
            places = ((topic.name, index) for topic in topics for index in topic.partitions)
            errors = dict.fromkeys(places, ErrorCode.transactional_id_authorization_failed)
        return context.answer(results_by_topic_v3_and_below=_results(topics, errors))
    if not context.may_cluster(Operation.CLUSTER_ACTION):
        return context.answer(error_code=ErrorCode.cluster_authorization_failed, results_by_transaction=())

    async def carried_out(one: Any) -> dict[str, Any]:
        producer = Producer(one.producer_id, one.producer_epoch)
        work = _verify if one.verify_only else _add
        errors = _unknown(context, one.topics, NOTHING)
        errors = errors or await work(context, one.transactional_id, producer, one.topics)
        return {"transactional_id": one.transactional_id, "topic_results": _results(one.topics, errors)}

    # All at once, so that they share a flush: another gateway waits for the whole answer.
    results = await asyncio.gather(*map(carried_out, request.transactions))
    return context.answer(error_code=ErrorCode.none, results_by_transaction=results)


async def _add(
    context: RequestContext[Services], transactional_id: str, producer: Producer, topics: Sequence[Any]
) -> Errors:
    places = frozenset((topic.name, index) for topic in topics for index in topic.partitions)
    version = context.api_version
    client_version = VERSION_2 if version >= FIRST_OF_CLIENTS_THAT_ADD_BY_PRODUCE else 0
    error = ErrorCode.none
    if not transactional_id:
        error = ErrorCode.invalid_request
    else:
        try:
            await context.services.coordinators.transactions.add_partitions(
                transactional_id, producer, places, client_version
            )
        except (TransactionRefused, Unavailable) as refused:
            error = error_code_for(refused, version, FIRST_WITH_FENCED)
    return dict.fromkeys(places, error)


async def _verify(
    context: RequestContext[Services], transactional_id: str, producer: Producer, topics: Sequence[Any]
) -> Errors:
    errors: Errors = {}
    for topic in topics:
        for index in topic.partitions:
            error = ErrorCode.none
            try:
                current = context.services.coordinators.transactions.find(transactional_id)
                check_partition(current, producer, (topic.name, index))
            except (TransactionRefused, Unavailable) as refused:
                error = refused.error_code
            errors[topic.name, index] = error if transactional_id else ErrorCode.invalid_request
    # Another gateway acknowledges a batch by this answer, so the record that added the partition must be
    # durable.
    newest = context.services.coordinators.transactions.unpersisted(transactional_id)
    if newest is not None and not await newest[0].persisted(newest[1]):
        return dict.fromkeys(errors, ErrorCode.not_coordinator)
    return errors


def _unknown(context: RequestContext[Services], topics: Sequence[Any], hidden: AbstractSet[str]) -> Errors:
    """Return the errors of all partitions when one of them can't be added; empty when all can. A partition of
    a topic in `hidden` can't be added, whether or not it exists.
    """
    errors: Errors = {}
    is_refused = False
    for topic in topics:
        for index in topic.partitions:
            error = ErrorCode.operation_not_attempted
            is_internal = topic.name in INTERNAL_TOPICS and context.api_version < FIRST_OF_BROKERS
            if is_internal or topic.name in hidden:
                error = ErrorCode.topic_authorization_failed
            elif not context.services.partitions.registry.has(topic.name, index):
                error = ErrorCode.unknown_topic_or_partition
            is_refused = is_refused or error is not ErrorCode.operation_not_attempted
            errors[topic.name, index] = error
    return errors if is_refused else {}


def _results(topics: Sequence[Any], errors: Errors) -> list[dict[str, Any]]:
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": errors[topic.name, index]}
                for index in topic.partitions
            ],
        }
        for topic in topics
    ]


async def handle_offsets(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    """Add the group's partition to the transaction durably."""
    version = context.api_version
    services = context.services
    error = ErrorCode.none
    if not context.may_transactional_id(Operation.WRITE, request.transactional_id):
        error = ErrorCode.transactional_id_authorization_failed
    elif not context.may_group(Operation.READ, request.group_id):
        error = ErrorCode.group_authorization_failed
    elif not request.transactional_id:
        error = ErrorCode.invalid_request
    elif is_name_group(request.group_id):
        error = ErrorCode.invalid_group_id
    else:
        producer = Producer(request.producer_id, request.producer_epoch)
        refuse_late(services.transactions.connections, context.peer, producer)
        try:
            await services.groups.ensure_topic()
            places = frozenset({(OFFSETS_TOPIC, services.groups.shards.index_of(request.group_id))})
            await services.transactions.add_partitions(request.transactional_id, producer, places, 0)
        except (TransactionRefused, Unavailable) as refused:
            error = error_code_for(refused, version, FIRST_WITH_FENCED)
    return context.answer(error_code=error)


ADD_OFFSETS_TO_TXN_API = Api(key=25, versions=(0, 4), reaches=api.coordinators, handle=handle_offsets)


ADD_PARTITIONS_TO_TXN_API = Api(key=24, versions=(0, 5), reaches=api.everything, handle=handle_partitions)
