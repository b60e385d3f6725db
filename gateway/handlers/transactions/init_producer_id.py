"""InitProducerId (key 22, versions 0–5): get a producer id and epoch. Rights: `WRITE` on the transactional id
(with a transactional id); `IDEMPOTENT_WRITE` on the cluster (without); `WRITE` on the topic (or this, on any
topic).

Without a transactional id the answer has a fresh producer id with epoch 0. With one it has the id's own
producer with a newer epoch, which fences the former producer; an open transaction is aborted first. From v3
on a producer may name its former id and epoch (KIP-360). `begin_producer` in
`coordinator/transaction/rules.py` decides. Source: Kafka's KafkaApis.handleInitProducerIdRequest,
TransactionCoordinator.handleInitProducerId.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.transaction.rules import Producer, TransactionRefused
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext, client_of
from seqgate.gateway.handlers.answering.rights import has_on_cluster
from seqgate.gateway.handlers.transactions.end_txn import error_code_for
from seqgate.gateway.protocol.messages import milliseconds
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.security.acls.access import CLUSTER_NAME, Operation, ResourceType
from seqgate.pid_allocator import NoProducerIds

logger = logging.getLogger(__name__)

FIRST_WITH_PRODUCER: Final = 3
FIRST_WITH_FENCED: Final = 4
FIRST_EPOCH: Final = 0


async def handle(context: RequestContext[Services], request: Any) -> Any:
    """Return the next id of the current block, or begin a transactional producer durably."""
    version = context.api_version
    refusal = _refusal(context, request.transactional_id)
    if refusal is not ErrorCode.none:
        return _answer(context, refusal)
    claimed = Producer()
    if version >= FIRST_WITH_PRODUCER:
        claimed = Producer(request.producer_id, request.producer_epoch)
        if (claimed.producer_id == -1) != (claimed.producer_epoch == -1):
            return _answer(context, ErrorCode.invalid_request)
    if request.transactional_id is None:
        return await _idempotent(context)
    timeout_ms = milliseconds(request.transaction_timeout)
    try:
        producer = await context.services.coordinators.transactions.begin_producer(
            request.transactional_id, timeout_ms, claimed
        )
    except (TransactionRefused, Unavailable) as refused:
        return _answer(context, error_code_for(refused, version, FIRST_WITH_FENCED))
    _note_client(context, request.transactional_id, producer)
    return _answer(context, ErrorCode.none, producer)


def _note_client(context: RequestContext[Services], transactional_id: str, producer: Producer) -> None:
    """Note whose producer this is now; log when the new epoch fences another client."""
    clients = context.services.partitions.counters.clients
    client = client_of(context.peer, context.client_id)
    before = clients.find(producer.producer_id, producer.producer_epoch - 1)
    clients.note(producer.producer_id, producer.producer_epoch, client, context.node.clock.now_ms())
    if before not in {None, client}:
        logger.info(
            "%s fenced %s: producer epoch %d of the transactional id %s",
            client,
            before,
            producer.producer_epoch,
            transactional_id,
        )


def _refusal(context: RequestContext[Services], transactional_id: str | None) -> ErrorCode:
    """Return the error if the client may not get a producer; else NONE."""
    if transactional_id is not None:
        if context.may_transactional_id(Operation.WRITE, transactional_id):
            return ErrorCode.none
        return ErrorCode.transactional_id_authorization_failed
    if has_on_cluster(context, Operation.IDEMPOTENT_WRITE) or context.node.access.allows_some(
        context.peer.principal, context.peer_host, Operation.WRITE, ResourceType.TOPIC
    ):
        return ErrorCode.none
    context.audit_refusal(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME)
    return ErrorCode.cluster_authorization_failed


async def _idempotent(context: RequestContext[Services]) -> Any:
    try:
        producer_id = await context.services.coordinators.producer_ids.next_producer_id()
    except NoProducerIds as error:
        logger.warning("no producer id for %s: %s", context.peer.name, error)
        return _answer(context, ErrorCode.coordinator_load_in_progress)
    return _answer(context, ErrorCode.none, Producer(producer_id, FIRST_EPOCH))


_NOBODY: Final = Producer()


def _answer(context: RequestContext[Services], error: ErrorCode, producer: Producer = _NOBODY) -> Any:
    return context.answer(
        error_code=error, producer_id=producer.producer_id, producer_epoch=producer.producer_epoch
    )


API = Api(22, 0, 5, api.everything, handle=handle)
