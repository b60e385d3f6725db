"""InitProducerId (key 22, versions 0–5): get a producer id and epoch. Rights: `WRITE` on the transactional id
(with a transactional id); `IDEMPOTENT_WRITE` on the cluster (without); `WRITE` on the topic (or this, on any
topic).

Without a transactional id the answer has a fresh producer id with epoch 0. With one it has the id's own
producer with a newer epoch, which fences the former producer; an open transaction is aborted first. From v3
on a producer may name its former id and epoch (KIP-360). Source: Kafka's
KafkaApis.handleInitProducerIdRequest, TransactionCoordinator.handleInitProducerId.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.transaction.records import (
    DECIDED,
    EMPTY,
    MAX_TRANSACTIONAL_ID_BYTES,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    ONGOING,
    Transaction,
)
from seqgate.gateway.coordinator.transaction.rules import (
    LAST_EPOCH_TO_BUMP,
    NeedsProducerId,
    Producer,
    TransactionLimits,
    TransactionRefused,
    become,
    check_not_next,
    fence,
)
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext, client_of
from seqgate.gateway.handlers.answering.rights import has_on_cluster
from seqgate.gateway.handlers.transactions.end_txn import error_code_for
from seqgate.gateway.protocol.messages import milliseconds
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.coordinators.transaction_coordinator import TransactionCoordinator
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
        producer = await begin_producer(
            context.services.coordinators.transactions, request.transactional_id, timeout_ms, claimed
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


async def begin_producer(
    transactions: TransactionCoordinator, transactional_id: str, timeout_ms: int, claimed: Producer
) -> Producer:
    """Return the new producer id and epoch of a transactional id, durably; they fence all earlier producers.

    An open transaction is aborted first; the request waits for its end. Raises TransactionRefused,
    Unavailable.
    """
    limits = transactions.limits
    check_begin(transactional_id, timeout_ms, limits)

    def begin(current: Transaction | None, fresh_id: int | None, now_ms: int) -> Transaction:
        if current is None:
            count = sum(len(loaded.shard.transactions) for loaded in transactions.shards)
            if count >= limits.max_transactional_ids:
                raise TransactionRefused(ErrorCode.policy_violation)
        return next_state(current, timeout_ms, claimed, fresh_id, now_ms)

    async def attempt() -> Producer:
        written = await transactions.change_with_id(transactional_id, begin)
        assert written.value is not None
        if written.value.state in DECIDED:
            raise TransactionRefused(ErrorCode.concurrent_transactions)
        await transactions.shards.persisted(written.loaded, written.last_offset)
        return Producer(written.value.producer_id, written.value.producer_epoch)

    return await transactions.endings.repeat_after_ends(transactional_id, attempt)


def check_begin(transactional_id: str, timeout_ms: int, limits: TransactionLimits) -> None:
    """Validate the fields of an InitProducerId, whoever sends it. Raises TransactionRefused."""
    if not transactional_id or len(transactional_id.encode()) > MAX_TRANSACTIONAL_ID_BYTES:
        raise TransactionRefused(ErrorCode.invalid_request)
    if not 0 < timeout_ms <= limits.max_timeout_ms:
        raise TransactionRefused(ErrorCode.invalid_transaction_timeout)


def next_state(
    current: Transaction | None,
    timeout_ms: int,
    claimed: Producer,
    fresh_producer_id: int | None,
    now_ms: int,
) -> Transaction:
    """Return the state of a transactional id after an InitProducerId. A result in PREPARE_ABORT means: end
    the open transaction first, then ask again.

    `claimed` is the client's former producer, if the request names it. Raises TransactionRefused,
    NeedsProducerId.
    """
    if current is None:
        producer_id = _fresh(fresh_producer_id)
        return Transaction(producer_id, 0, timeout_ms, last_update_ms=now_ms)
    check_not_next(current, claimed)
    if claimed.is_named and not _is_or_was(current, claimed):
        raise TransactionRefused(ErrorCode.producer_fenced)
    if current.state in DECIDED:
        raise TransactionRefused(ErrorCode.concurrent_transactions)
    if current.state is ONGOING:
        if claimed.is_named and claimed.producer_epoch != current.producer_epoch:
            # Kafka aborts the present producer's transaction, and then refuses
            raise TransactionRefused(ErrorCode.producer_fenced)
        return fence(current, now_ms)
    changes: dict[str, Any] = {
        "timeout_ms": timeout_ms,
        "partitions": frozenset(),
        "start_ms": NO_TIME,
        "last_update_ms": now_ms,
        "next_producer_id": NO_PRODUCER_ID,
    }
    return become(current, EMPTY, **changes, **_next_producer(current, claimed, fresh_producer_id))


def _is_or_was(current: Transaction, claimed: Producer) -> bool:
    """Return whether a producer id is the present one, or the previous one whose epochs were used up."""
    if claimed.producer_id == current.producer_id:
        return True
    return (
        claimed.producer_id == current.previous_producer_id and claimed.producer_epoch >= LAST_EPOCH_TO_BUMP
    )


def _next_producer(current: Transaction, claimed: Producer, fresh_producer_id: int | None) -> dict[str, int]:
    # the epoch rises where the client is new, or has the newest epoch
    if not claimed.is_named or claimed.producer_epoch == current.producer_epoch:
        last_producer_epoch = current.producer_epoch if claimed.is_named else NO_PRODUCER_EPOCH
        if current.producer_epoch >= LAST_EPOCH_TO_BUMP:
            return {
                "producer_id": _fresh(fresh_producer_id),
                "previous_producer_id": current.producer_id,
                "producer_epoch": 0,
                "last_producer_epoch": last_producer_epoch,
            }
        return {"producer_epoch": current.producer_epoch + 1, "last_producer_epoch": last_producer_epoch}
    if claimed.producer_epoch == current.last_producer_epoch:
        return {}  # The request is a retry, because the answer was lost.
    raise TransactionRefused(ErrorCode.producer_fenced)


def _fresh(producer_id: int | None) -> int:
    if producer_id is None:
        raise NeedsProducerId
    return producer_id


API = Api(key=22, versions=(0, 5), reaches=api.everything, handle=handle)
