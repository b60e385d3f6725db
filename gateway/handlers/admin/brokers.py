"""BrokerHeartbeat (key 63, versions 0–1): learn from another gateway that the metadata has changed, drain a
gateway, or take a drain back. Rights: `CLUSTER_ACTION` on the cluster.

    an offset that this gateway lacks        the gateway reads the metadata, and answers when it has it
    200 ms later, or without such an offset  the answer says whether it has it
    `want_shut_down`                         the broker hands over what it leads; `should_shut_down`:
                                             it leads nothing any more. The broker itself plans its
                                             moves (`planned_moves` in metadata/leadership.py), and
                                             carries them out (runtime/topics/partition_moves.py)
    `want_shut_down`, and no successor       INVALID_REQUEST
    `want_shut_down` for a worker of a data  POLICY_VIOLATION
    directory without a bucket
    the epoch −1 without `want_shut_down`    a drain of the broker is taken back
    the epoch −2 with `want_shut_down`       nothing is ordered; NO_REASSIGNMENT_IN_PROGRESS where the broker
                                             lives and is not drained
    an unknown broker, another epoch         BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH
    a drain of a broker that has ended, or   BROKER_ID_NOT_REGISTERED
    the end of its drain
    without CLUSTER_ACTION on the cluster    CLUSTER_AUTHORIZATION_FAILED, and nothing is read
    at a gateway that serves alone           the connection is closed, as for an unknown API

In Kafka brokers send this to the controller, to stay unfenced and to ask whether they may stop. Here the log
of a gateway's session shows that the gateway lives, so that `want_fence` is refused with INVALID_REQUEST.
`seqgate cluster drain` and `undrain` ask for another gateway than themselves, with the epoch −1: any. A drain
is ordered once. Its command waits with the epoch −2, so that the drain can be taken back meanwhile.
ApiVersions names the API only where there are several gateways. Source: Kafka's
ControllerApis.handleBrokerHeartBeatRequest.

UnregisterBroker (key 64, version 0): remove a gateway that has ended from the cluster. Rights: `ALTER` on the
cluster.

Kafka unregisters a broker that runs as well. A gateway that runs would serve on, so the request gets
INVALID_REQUEST. Source: Kafka's ClusterControlManager.unregisterBroker.

UnregisterController (key 94, version 0): remove a controller that has ended from the quorum. Rights: `ALTER`
on the cluster.

Gateways have no controllers, so each one gets CONTROLLER_ID_NOT_REGISTERED. Source: Kafka's
ClusterControlManager.unregisterController.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, CloseConnection, RequestContext
from seqgate.gateway.handlers.answering.changes import change_metadata_until_it_counts, log_change
from seqgate.gateway.handlers.answering.rights import cluster_refusal
from seqgate.gateway.metadata.decision import ApiError, Decision, told
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.leadership import led_by, redirected
from seqgate.gateway.metadata.records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    UnregisterBrokerRecord,
)
from seqgate.gateway.protocol.kafka_4_4 import LaterErrorCode
from seqgate.gateway.runtime.services import TopicServices
from seqgate.gateway.security.acls.access import Operation

CATCH_UP_WAIT_S: Final = 0.2
"""How long the answer waits until this gateway has the metadata up to the offset in the request."""
_ANY_EPOCH: Final = -1
"""The default of the field, in the requests of commands; gateways send the epoch of their session."""
_WAITING_EPOCH: Final = -2
"""The epoch in the requests of a command that waits for the end of a drain, which it has ordered before."""


async def handle_broker_heartbeat(context: RequestContext[TopicServices], request: Any) -> Any:
    """Catch up with the sender, and say whether this gateway has."""
    if context.node.brokers.is_alone:
        raise CloseConnection("BrokerHeartbeat to a gateway that serves alone")
    denied = cluster_refusal(context, Operation.CLUSTER_ACTION)
    if denied is not None:
        return _answer(context, denied.error_code)
    if request.want_fence:
        return _answer(context, ErrorCode.invalid_request)
    metadata_log = context.services.metadata_log
    wanted: int = request.current_metadata_offset

    def has_it(_: MetadataImage) -> bool:
        return metadata_log.last_offset >= wanted

    if not has_it(metadata_log.image):
        metadata_log.catch_up_soon()
        await context.services.waiters.until(has_it, CATCH_UP_WAIT_S)
    error = _error_of(metadata_log.image, request)
    is_order = request.want_shut_down and request.broker_epoch != _WAITING_EPOCH
    if not error and (is_order or request.broker_epoch == _ANY_EPOCH):
        error = await _set_draining(context, request.broker_id, is_draining=request.want_shut_down)
    if error:
        return _answer(context, error)
    image = metadata_log.image
    broker = image.brokers.by_id.get(request.broker_id)
    if broker is None:  # it was unregistered while the order became durable
        return _answer(context, ErrorCode.broker_id_not_registered)
    return context.answer(
        error_code=ErrorCode.none,
        is_caught_up=has_it(image),
        is_fenced=broker.fenced,
        should_shut_down=request.want_shut_down and not led_by(image, request.broker_id),
    )


def _error_of(image: MetadataImage, request: Any) -> ErrorCode:
    """Return the error of a request in the name of a broker that is not registered so."""
    broker = image.brokers.by_id.get(request.broker_id)
    if broker is None:
        return ErrorCode.broker_id_not_registered
    if request.broker_epoch == _WAITING_EPOCH and request.want_shut_down:
        is_drained = image.brokers.is_drained(request.broker_id)
        return ErrorCode.none if is_drained else ErrorCode.no_reassignment_in_progress
    is_current = request.broker_epoch in {_ANY_EPOCH, broker.broker_epoch}
    return ErrorCode.none if is_current else ErrorCode.stale_broker_epoch


async def _set_draining(
    context: RequestContext[TopicServices], broker_id: int, *, is_draining: bool
) -> ErrorCode:
    """Order a gateway to hand over what it leads, or take that order back, unless that was done before."""
    decide = drain_broker if is_draining else undrain_broker
    brokers = context.services.metadata_log.image.brokers
    if (broker_id in brokers.draining()) == is_draining and not brokers.by_id[broker_id].fenced:
        return ErrorCode.none
    refused = await change_metadata_until_it_counts(context, lambda image: decide(image, broker_id))
    if refused is not None:
        return refused.error_code
    log_change(context, "drained gateway" if is_draining else "took back the drain of gateway", [broker_id])
    return ErrorCode.none


def drain_broker(image: MetadataImage, node_id: int) -> Decision[ApiError | None]:
    """Order a live broker to hand over all it leads; new partitions avoid it until it registers again.
    Moves to it that were ordered before go to another replica, or are taken back. The broker reads the order
    in the metadata, and plans and does its moves itself (runtime/topics/partition_moves.py).
    """
    live = image.brokers.live(node_id) if image.brokers.by_id else ()
    if node_id not in live:
        return Decision((), _not_live(node_id))
    broker = image.brokers.by_id[node_id]
    if not broker.cluster_version:  # it writes nothing into a bucket
        text = "workers of one data directory are not drained, because they stop together"
        return Decision((), ApiError(ErrorCode.policy_violation, text))
    if not set(live) - {node_id} - set(image.brokers.draining()):
        text = f"no other live gateway can take the partitions of node {node_id}"
        return Decision((), ApiError(ErrorCode.invalid_request, text))
    if broker.in_controlled_shutdown:
        return Decision((), None)
    change = BrokerRegistrationChangeRecord(node_id, broker.broker_epoch, in_controlled_shutdown=1)
    records: list[MetadataRecord] = [change]
    records += redirected(image, live, {*image.brokers.draining(), node_id})
    return Decision(records, None)


def undrain_broker(image: MetadataImage, node_id: int) -> Decision[ApiError | None]:
    """Take back the drain of a live broker: it keeps what it still leads, and gets partitions again."""
    broker = image.brokers.by_id.get(node_id)
    if broker is None or broker.fenced:
        return Decision((), _not_live(node_id))
    if not broker.in_controlled_shutdown:
        return Decision((), None)
    change = BrokerRegistrationChangeRecord(node_id, broker.broker_epoch, in_controlled_shutdown=-1)
    return Decision((change,), None)


def _not_live(node_id: int) -> ApiError:
    return ApiError(ErrorCode.broker_id_not_registered, f"no live gateway has the node id {node_id}")


def _answer(context: RequestContext[TopicServices], error: ErrorCode) -> Any:
    return context.answer(error_code=error, is_caught_up=False, is_fenced=True, should_shut_down=False)


async def handle_unregister_broker(context: RequestContext[TopicServices], request: Any) -> Any:
    """Remove the broker, or refuse: it is unknown, or it runs."""
    broker = request.broker_id

    def note(refused: ApiError | None) -> None:
        log_change(context, "removed gateway", [broker] if refused is None else [])

    error = cluster_refusal(context, Operation.ALTER)
    if error is None and broker == context.node.node_id:
        text = f"Broker ID {broker} is this gateway; to remove the gateway, stop the gateway."
        error = ApiError(ErrorCode.invalid_request, text)
    elif error is None:
        error = await change_metadata_until_it_counts(
            context, lambda image: unregister_broker(image, broker), note=note
        )
    return context.answer(**told(error))


def unregister_broker(image: MetadataImage, node_id: int) -> Decision[ApiError | None]:
    """Remove a broker that has ended from the list of brokers."""
    broker = image.brokers.by_id.get(node_id)
    if broker is None:
        text = f"Broker ID {node_id} is not currently registered"
        return Decision((), ApiError(ErrorCode.broker_id_not_registered, text))
    if not broker.fenced:
        text = f"Broker ID {node_id} is a live gateway; to remove the gateway, stop the gateway first."
        return Decision((), ApiError(ErrorCode.invalid_request, text))
    return Decision((UnregisterBrokerRecord(node_id, broker.broker_epoch),), None)


UNREGISTER_BROKER_API = Api(key=64, versions=(0, 0), reaches=api.topics, handle=handle_unregister_broker)


async def handle_unregister_controller(context: RequestContext[TopicServices], request: Any) -> Any:
    """Refuse: nobody is registered as a controller."""
    denied = cluster_refusal(context, Operation.ALTER)
    if denied is not None:
        return context.answer(**told(denied))
    return context.answer(
        error_code=LaterErrorCode.controller_id_not_registered,
        error_message=f"Controller ID {request.controller_id} is not currently registered.",
    )


UNREGISTER_CONTROLLER_API = Api(
    key=94, versions=(0, 0), reaches=api.topics, handle=handle_unregister_controller
)


BROKER_HEARTBEAT_API = Api(
    key=63, versions=(0, 1), reaches=api.topics, handle=handle_broker_heartbeat, is_between_gateways=True
)
