"""AddOffsetsToTxn (key 25, versions 0–4): announce that the transaction will commit offsets of a group.

The partition of `__consumer_offsets` that holds the group takes part in the transaction from then on.
Source: Kafka's KafkaApis.handleAddOffsetsToTxnRequest.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.name_groups import is_name_group
from seqgate.gateway.coordinator.transaction.rules import Producer, TransactionRefused
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.transactions.end_txn import error_code_for, refuse_late
from seqgate.gateway.protocol.messages import build, response_type
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.services import CoordinatorServices
from seqgate.gateway.security.acls.access import Operation

API_KEY: Final = 25
FIRST_WITH_FENCED: Final = 2


async def handle(context: RequestContext[CoordinatorServices], request: Any) -> Any:
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
            await services.transactions.add_offsets(request.transactional_id, producer, request.group_id, 0)
        except (TransactionRefused, Unavailable) as refused:
            error = error_code_for(refused, version, FIRST_WITH_FENCED)
    return build(response_type(API_KEY, version), error_code=error)


API = Api(API_KEY, "AddOffsetsToTxn", 0, 4, api.coordinators, handle=handle)
