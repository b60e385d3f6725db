"""EndTxn (key 26, versions 0–5): commit or abort; answered when every partition has its marker. Rights:
`WRITE` on the transactional id.

From v5 on each end raises the epoch, and the answer has the new one (KIP-890). A partition that is not
reachable gets its marker later: after five seconds the answer leaves without it (`END_WAIT_S` in
`runtime/coordinators/transaction_coordinator.py`). Source: Kafka's KafkaApis.handleEndTxnRequest,
TransactionCoordinator.endTransaction.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.transaction.records import (
    ABORT,
    COMMIT,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    COMPLETED,
    DECIDED,
    EMPTY,
    IDLE,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    Transaction,
    TransactionState,
)
from seqgate.gateway.coordinator.transaction.rules import (
    LAST_EPOCH_TO_BUMP,
    MAX_EPOCH,
    VERSION_2,
    NeedsProducerId,
    NewestConnections,
    Producer,
    TransactionRefused,
    become,
    check_not_next,
    complete,
)
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, CloseConnection, Peer, RequestContext, client_of
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.coordinators.transaction_coordinator import TransactionCoordinator, wait_for_end
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.security.acls.access import Operation

FIRST_WITH_FENCED: Final = 2
FIRST_WITH_EPOCH: Final = 5


class EndRequest(NamedTuple):
    """An EndTxn; from v5 on the client has version 2."""

    producer: Producer
    commit: bool
    client_version: int


async def handle(context: RequestContext[Services], request: Any) -> Any:
    """End the transaction, and tell the producer id and epoch to use next."""
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
            producer = await end_transaction(transactions, request.transactional_id, asked)
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


async def end_transaction(
    transactions: TransactionCoordinator, transactional_id: str, request: EndRequest
) -> Producer:
    """Decide the end durably, and write the marker of each partition; return the producer id and epoch to use
    next. The markers of a partition that takes longer than END_WAIT_S follow after the answer. While another
    end of the same id is under way, the request waits. Raises TransactionRefused, Unavailable.
    """

    async def attempt() -> Producer:
        decided = await transactions.change_with_id(
            transactional_id, lambda current, fresh_id, now_ms: decided_by(current, request, fresh_id, now_ms)
        )
        value = decided.value
        assert value is not None
        if not decided.is_new:
            return Producer(value.producer_id, value.producer_epoch)
        # A task writes the marker of each partition, once the decision is durable.
        writing_of_markers = transactions.endings.of(transactional_id)
        await transactions.shards.persisted(decided.loaded, decided.last_offset)
        if writing_of_markers is not None:
            await wait_for_end(writing_of_markers)
        return producer_after(value)

    return await transactions.endings.repeat_after_ends(transactional_id, attempt)


class End(Enum):
    """The outcome of an EndTxn."""

    PREPARE = "the end is decided now"
    DONE = "the transaction has already ended in this way"
    BUSY = "the transaction is ending in this way; try again"
    INVALID = "there is no transaction that can end in this way"


END_V2_AGAIN: Final = {
    (PREPARE_COMMIT, COMMIT): End.BUSY,
    (PREPARE_ABORT, ABORT): End.BUSY,
    (COMPLETE_COMMIT, COMMIT): End.DONE,
    (COMPLETE_ABORT, ABORT): End.DONE,
}
"""The outcomes for a client whose epoch rises with every end, when its epoch shows a retry."""
_ONGOING_ENDS: Final = {(ONGOING, COMMIT): End.PREPARE, (ONGOING, ABORT): End.PREPARE}

END_V1: Final = {**_ONGOING_ENDS, **END_V2_AGAIN}
"""The outcomes for a client whose epoch stays: a retry can't be recognized. Missing entries are INVALID."""
END_V2: Final = {**_ONGOING_ENDS, **{(state, ABORT): End.PREPARE for state in IDLE}}
"""The outcomes for a client whose epoch rises with every end (KIP-890): an abort may end an empty one."""


def decided_by(
    current: Transaction | None, request: EndRequest, fresh_producer_id: int | None, now_ms: int
) -> Transaction | None:
    """Return the decided transaction, or None when it has already ended in this way. Raises
    TransactionRefused, NeedsProducerId.
    """
    if current is None:
        raise TransactionRefused(ErrorCode.invalid_producer_id_mapping)
    table = _end_table(current, request)
    outcome = table.get((current.state, request.commit), End.INVALID)
    if outcome is End.DONE:
        return None
    if outcome is End.BUSY:
        raise TransactionRefused(ErrorCode.concurrent_transactions)
    if outcome is End.INVALID:
        raise TransactionRefused(ErrorCode.invalid_txn_state)
    changes: dict[str, Any] = {"client_version": request.client_version, "last_update_ms": now_ms}
    if request.client_version >= VERSION_2:
        if current.producer_epoch >= LAST_EPOCH_TO_BUMP:
            if fresh_producer_id is None:
                raise NeedsProducerId
            changes["next_producer_id"] = fresh_producer_id
        changes["producer_epoch"] = min(current.producer_epoch + 1, MAX_EPOCH)
        changes["last_producer_epoch"] = current.producer_epoch
    if current.state is not ONGOING:  # a transaction that wrote nothing has no start time
        changes |= {"start_ms": now_ms, "partitions": frozenset()}
    return become(current, PREPARE_COMMIT if request.commit is COMMIT else PREPARE_ABORT, **changes)


def producer_after(decided: Transaction) -> Producer:
    """Return the id and epoch for the next transaction: epoch 0 of a new id where the present one has no
    epoch left, as `complete` decides.
    """
    completed = complete(decided, 0)
    return Producer(completed.producer_id, completed.producer_epoch)


def _end_table(current: Transaction, request: EndRequest) -> dict[tuple[TransactionState, bool], End]:
    """Return the outcomes, by whether this is a retry. Raises TransactionRefused for a wrong producer."""
    claimed = request.producer
    check_not_next(current, claimed)
    is_same_epoch = claimed.producer_epoch == current.producer_epoch
    if request.client_version < VERSION_2:
        if claimed.producer_id != current.producer_id:
            raise TransactionRefused(ErrorCode.invalid_producer_id_mapping)
        if not is_same_epoch:
            raise TransactionRefused(ErrorCode.producer_fenced)
        return END_V1
    is_after_overflow = (
        claimed.producer_id == current.previous_producer_id
        and claimed.producer_epoch == LAST_EPOCH_TO_BUMP
        and current.producer_epoch == 0
    )
    if claimed.producer_id != current.producer_id and not is_after_overflow:
        raise TransactionRefused(ErrorCode.invalid_producer_id_mapping)
    # An EndTxn of version 1 keeps the epoch. This epoch is one above the epoch of the instance that this
    # producer fenced, or the first one of another id.
    is_after_bump = claimed.producer_epoch + 1 == current.producer_epoch
    if current.client_version >= VERSION_2:
        if is_after_bump and current.state not in {EMPTY, ONGOING}:
            return END_V2_AGAIN
        if is_after_overflow and current.state in COMPLETED.values():
            return END_V2_AGAIN
    if is_same_epoch and current.state in DECIDED:
        # Kafka refuses the present producer as a fenced one. It has got this epoch by the answer to the end
        # before, whose markers are not written yet.
        raise TransactionRefused(ErrorCode.concurrent_transactions)
    if is_same_epoch:
        return END_V2
    raise TransactionRefused(ErrorCode.producer_fenced)


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


API = Api(key=26, versions=(0, 5), reaches=api.everything, handle=handle)
