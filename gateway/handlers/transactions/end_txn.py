"""EndTxn (key 26, versions 0–5): commit or abort; answered when every partition has its marker. Rights:
`WRITE` on the transactional id.

From v5 on each end raises the epoch, and the answer has the new one (KIP-890). `end` in
`coordinator/transaction/rules.py` decides. Source: Kafka's KafkaApis.handleEndTxnRequest.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.transaction.rules import (
    VERSION_2,
    EndRequest,
    NewestConnections,
    Producer,
    TransactionRefused,
)
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, CloseConnection, Peer, RequestContext, client_of
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.security.acls.access import Operation

FIRST_WITH_FENCED: Final = 2
FIRST_WITH_EPOCH: Final = 5


async def handle(context: RequestContext[Services], request: Any) -> Any:
    """End the transaction. `end` returns when the decision is durable and each partition has its marker; the
    markers of a partition that takes longer than END_WAIT_S follow after the answer.
    """
    transactions = context.services.coordinators.transactions
    version = context.api_version
    error, producer = ErrorCode.none, Producer()
    asked = EndRequest(
        Producer(request.producer_id, request.producer_epoch),
        request.committed,
        VERSION_2 if version >= FIRST_WITH_EPOCH else 0,
    )
    if not context.may_transactional_id(Operation.WRITE, request.transactional_id):
        error = ErrorCode.transactional_id_authorization_failed
    elif not request.transactional_id:
        error = ErrorCode.invalid_request
    else:
        if asked.client_version < VERSION_2:
            refuse_late(transactions.connections, context.peer, asked.producer)
        try:
            producer = await transactions.end(request.transactional_id, asked)
        except (TransactionRefused, Unavailable) as refused:
            error = error_code_for(refused, version, FIRST_WITH_FENCED)
        else:
            # version 2 of transactions has a new epoch after each, which no InitProducerId tells
            context.services.partitions.counters.clients.note(
                producer.producer_id,
                producer.producer_epoch,
                client_of(context.peer, context.client_id),
                context.node.clock.now_ms(),
            )
    return context.answer(
        error_code=error, producer_id=producer.producer_id, producer_epoch=producer.producer_epoch
    )


# Refuses requests of transactions that arrive after the client has given up their connection.


def refuse_late(connections: NewestConnections, peer: Peer, producer: Producer) -> None:
    """Close the connection of a request of version 1 if its producer uses a newer connection. Raises
    CloseConnection. A client that uses both connections connects again, and then the request is in time.
    """
    if connections.is_late(producer, peer.number):
        raise CloseConnection(
            f"the producer {producer.producer_id} (epoch {producer.producer_epoch}) uses a newer connection "
            "for its transactions"
        )


def error_code_for(
    error: TransactionRefused | Unavailable, api_version: int, first_with_fenced: int
) -> ErrorCode:
    """Return the version's code: before `first_with_fenced` INVALID_PRODUCER_EPOCH for PRODUCER_FENCED."""
    if error.error_code is ErrorCode.producer_fenced and api_version < first_with_fenced:
        return ErrorCode.invalid_producer_epoch
    return error.error_code


API = Api(26, 0, 5, api.everything, handle=handle)
