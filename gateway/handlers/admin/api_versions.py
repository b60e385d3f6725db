"""ApiVersions (key 18, versions 0–5): list the APIs that this node serves; the first request of every client.
Rights: none.

A client software name or version that Kafka refuses gets INVALID_REQUEST (KIP-511). From v5 on a client may
name the cluster and the node that it means to reach (KIP-1242). Where another gateway or worker answers, as
behind one address or after an address has a new owner, it gets REBOOTSTRAP_REQUIRED and asks the bootstrap
servers again; one of the two names without the other gets INVALID_REQUEST. The answer lists those of
Kafka's features that this node serves, at the level of a new cluster (KIP-584). By `transaction.version` 2
clients choose between the two protocols of transactions (KIP-890). An API that only gateways ask
(`is_between_gateways`: BrokerHeartbeat) is listed only where there are several gateways. Source: Kafka's
KafkaApis.handleApiVersionsRequest, ApiVersionsRequest.isValid.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

from kio.schema.errors import ErrorCode

from seqgate.gateway.config.packages import is_installed
from seqgate.gateway.handlers.answering import api as reach
from seqgate.gateway.handlers.answering.api import (
    Api,
    ClientSoftware,
    HotHandler,
    RequestContext,
    ResponseBytes,
)
from seqgate.gateway.protocol.messages import encode_response, row_type
from seqgate.gateway.runtime.services import TopicServices

API_KEY = 18
VERSIONS = (0, 5)
FIRST_WITH_SOFTWARE = 3
FIRST_WITH_MIN_VERSION_0 = 4
FIRST_WITH_NODE = 5
NO_NODE = -1
FEATURES = {"group.version": 1, "share.version": 2, "streams.version": 1, "transaction.version": 2}
"""The features and their level, which is the highest one; the lowest is 0."""
MAX_SOFTWARE_CHARACTERS = 256
"""Characters of the client's software name and version that the connection keeps."""
_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def api_versions(apis: Sequence[Api[Any]]) -> Api[TopicServices]:
    """Return the handler that advertises `apis` and itself."""
    served = [api for api in apis if api.package is None or is_installed(api.package)]
    rows = sorted([*map(_row, served), (API_KEY, *VERSIONS)])
    for_gateways = {api.key for api in apis if api.is_between_gateways}
    return Api(
        key=API_KEY,
        versions=VERSIONS,
        reaches=reach.topics,
        begin=_begin([row for row in rows if row[0] not in for_gateways], rows),
    )


_Row = tuple[int, int, int]
"""An API with its lowest version for clients and its highest."""


def _row(api: Api[Any]) -> _Row:
    lowest, highest = api.versions
    refused = api.advertised_but_refused
    return api.key, lowest if refused is None else refused[0], highest


def _begin(alone: Sequence[_Row], among_others: Sequence[_Row]) -> HotHandler[TopicServices]:
    @cache
    def rows(version: int, *, is_alone: bool) -> Sequence[Any]:
        # every connection begins with this request
        row = row_type(API_KEY, version, "ApiVersion")
        return tuple(
            row(api_key=key, min_version=lowest, max_version=highest)
            for key, lowest, highest in (alone if is_alone else among_others)
        )

    def begin(context: RequestContext[TopicServices], request: Any) -> ResponseBytes:
        error = ErrorCode.none if _is_valid(context.api_version, request) else ErrorCode.invalid_request
        context.peer.is_nameless = context.api_version < FIRST_WITH_SOFTWARE
        if error is ErrorCode.none and context.api_version >= FIRST_WITH_SOFTWARE:
            context.peer.software = _software(
                request.client_software_name[:MAX_SOFTWARE_CHARACTERS],
                request.client_software_version[:MAX_SOFTWARE_CHARACTERS],
            )
            if not _is_meant(context, request):
                error = ErrorCode.rebootstrap_required
        is_fine = error is ErrorCode.none
        served = rows(context.api_version, is_alone=context.node.brokers.is_alone) if is_fine else ()
        features = _features(context) if is_fine else {}
        response = context.answer(error_code=error, api_keys=served, **features)
        return encode_response(API_KEY, context.correlation_id, response)

    return begin


def _features(context: RequestContext[TopicServices]) -> dict[str, Any]:
    """Return the feature fields of an answer; before version 4 without features whose lowest level is 0."""
    supported = [{"name": name, "min_version": 0, "max_version": level} for name, level in FEATURES.items()]
    return {
        "supported_features": supported if context.api_version >= FIRST_WITH_MIN_VERSION_0 else (),
        "finalized_features_epoch": max(context.services.metadata_log.last_offset, 0),
        "finalized_features": [
            {"name": name, "max_version_level": level, "min_version_level": level}
            for name, level in FEATURES.items()
        ],
    }


_software = lru_cache(maxsize=256)(ClientSoftware)
"""Returns the client's software for telemetry (KIP-714): one object for all connections with the same."""


def _is_meant(context: RequestContext[TopicServices], request: Any) -> bool:
    """Return whether the client means this node, as far as it says whom it means (KIP-1242)."""
    if context.api_version < FIRST_WITH_NODE or request.cluster_id is None:
        return True
    node = context.node
    return bool(request.cluster_id == node.cluster_id and request.node_id == node.node_id)


def _is_valid(version: int, request: Any) -> bool:
    if version < FIRST_WITH_SOFTWARE:
        return True
    if version >= FIRST_WITH_NODE and (request.cluster_id is None) != (request.node_id == NO_NODE):
        return False
    return all(
        _SOFTWARE_NAME.fullmatch(text)
        for text in (request.client_software_name, request.client_software_version)
    )
