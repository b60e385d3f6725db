"""FindCoordinator (key 10, versions 0–6): return the node that coordinates a group or transactional id.
Rights: `DESCRIBE` on the group; `DESCRIBE` on the transactional id; `CLUSTER_ACTION` on the cluster
(partitions of share groups).

    key_type 0   a group
    key_type 1   a transactional id
    key_type 2   the state of a share group's partition, "group:topic_id:partition" (v6)

From v4 on a request names several keys. The first request of a key type creates the coordinator's internal
topic. Source: Kafka's KafkaApis.handleFindCoordinatorRequest.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.share.records import SharePartitionKey
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.rights import NOTHING, refused_names
from seqgate.gateway.metadata.records import topic_id_from_text
from seqgate.gateway.runtime.coordinators.shards import CoordinatorShards, Unavailable
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.services import CoordinatorServices
from seqgate.gateway.security.acls.access import Operation, ResourceType

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2
FIRST_WITH_SHARE: Final = 6
FIRST_BATCHED_VERSION: Final = 4
_SHARE_KEY: Final = re.compile(r".+:[A-Za-z0-9_-]{22}:-?\d{1,10}")
"""The form of a key of Kafka's SharePartitionKey.validate."""
NO_ERROR: Final = "NONE"
"""The message that Kafka sends without an error in versions with one key."""
_GUARDED: Final = {
    GROUP: (ResourceType.GROUP, ErrorCode.group_authorization_failed, "Group authorization failed."),
    TRANSACTION: (
        ResourceType.TRANSACTIONAL_ID,
        ErrorCode.transactional_id_authorization_failed,
        "Transactional Id authorization failed.",
    ),
}
"""The resource that a key of each type names, with the error and message for a client that may not describe
it.
"""
_NOT_DESCRIBED: Final = {key_type: (code, message) for key_type, (_, code, message) in _GUARDED.items()}
_NO_CLUSTER_ACTION: Final = (ErrorCode.cluster_authorization_failed, "Cluster authorization failed.")


async def handle(context: RequestContext[CoordinatorServices], request: Any) -> Any:
    """Answer with the coordinators' addresses on the client's listener."""
    version = context.api_version
    key_type = request.key_type if version >= 1 else GROUP
    keys = request.coordinator_keys if version >= FIRST_BATCHED_VERSION else (request.key,)
    shards = _shards(context, key_type)
    refused: AbstractSet[str] = NOTHING
    if key_type in _GUARDED:
        refused = await refused_names(context, Operation.DESCRIBE, _GUARDED[key_type][0], keys)
    elif shards is not None and not context.may_cluster(Operation.CLUSTER_ACTION):
        refused = set(keys)
    refusal = _NOT_DESCRIBED.get(key_type, _NO_CLUSTER_ACTION)
    # A client that may describe none of the keys must not cause the creation of the coordinator's topic.
    outcome = refusal if refused and refused >= set(keys) else await _error(shards, key_type)
    if version < FIRST_BATCHED_VERSION:
        answer = _located(context, shards, key_type, request.key, *outcome)
        if answer["error_code"] is ErrorCode.none:
            answer["error_message"] = NO_ERROR
        return context.answer(**answer)
    coordinators = []
    async for key in in_slices(keys):
        located = _located(context, shards, key_type, key, *(refusal if key in refused else outcome))
        coordinators.append(context.row("Coordinator", key=key, **located))
    return context.answer(coordinators=tuple(coordinators))


def _shards(context: RequestContext[CoordinatorServices], key_type: int) -> CoordinatorShards[Any] | None:
    """Return the shards whose leaders coordinate keys of this type; None for a type that is not served."""
    services = context.services
    if key_type == GROUP:
        return services.groups.shards
    if key_type == TRANSACTION:
        return services.transactions.shards
    is_share = key_type == SHARE and context.api_version >= FIRST_WITH_SHARE
    return services.shares.shards if is_share else None


async def _error(shards: CoordinatorShards[Any] | None, key_type: int) -> tuple[ErrorCode, str]:
    if shards is None:
        return ErrorCode.invalid_request, f"Coordinators of key type {key_type} are not served."
    try:
        await shards.ensure_topic()
    except Unavailable as error:
        return error.error_code, "The coordinator's topic could not be created."
    return ErrorCode.none, ""


def _located(
    context: RequestContext[CoordinatorServices],
    shards: CoordinatorShards[Any] | None,
    key_type: int,
    key: str,
    error: ErrorCode,
    message: str,
) -> dict[str, Any]:
    """Return the fields of an answer: the coordinator of the key, or why there is none."""
    owner = key
    if key_type == SHARE and error is ErrorCode.none:
        if _SHARE_KEY.fullmatch(key):
            group_id, topic_id, partition = key.rsplit(":", 2)
            place = SharePartitionKey(group_id, topic_id_from_text(topic_id), int(partition))
            owner = place.spread_text()
        else:
            error = ErrorCode.invalid_request
            message = f"{key!r} is not of the form group:topic_id:partition."
    broker = None
    if shards is not None and error is ErrorCode.none:
        broker = context.node.brokers.find_live(shards.leader_of(owner), context.listener_name)
        if broker is None:
            error = ErrorCode.coordinator_not_available
            message = "The gateway of the coordinator is not available."
    found = {"error_code": error, "error_message": message}
    if broker is None:
        return {"node_id": -1, "host": "", "port": -1, **found}
    return {"node_id": broker.node_id, "host": broker.host, "port": broker.port, **found}


API = Api(key=10, versions=(0, 6), reaches=api.coordinators, handle=handle, is_eager=True)
