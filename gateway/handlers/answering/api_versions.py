"""ApiVersions (key 18, versions 0–4): what this node serves; the first question of every client.

A client software name or version that Kafka would not accept is INVALID_REQUEST (KIP-511). Of Kafka's features those are told
that concern what is served, at the level of a new cluster (KIP-584): by transactions of version 2 clients choose between
both protocols of transactions (KIP-890).
Source: Kafka's KafkaApis.handleApiVersionsRequest, ApiVersionsRequest.isValid.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from gateway.handlers.answering.api import Answer, Api, HotHandler, RequestContext
from gateway.protocol.messages import build, encode_response, response_module

API_KEY = 18
MIN_VERSION = 0
MAX_VERSION = 4
FIRST_WITH_FEATURES = 3
FIRST_WITH_MIN_VERSION_0 = 4
FEATURES = {"group.version": 1, "share.version": 1, "transaction.version": 2}
"""Their level, which is the greatest that there is; the least is 0."""
_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def api_versions(apis: Sequence[Api]) -> Api:
    """The handler that advertises `apis` and itself."""
    served = sorted(
        [
            *((api.key, api.advertised_min_version, api.min_version, api.max_version) for api in apis),
            (API_KEY, None, MIN_VERSION, MAX_VERSION),
        ],
        key=lambda row: row[0],
    )
    return Api(
        key=API_KEY,
        name="ApiVersions",
        min_version=MIN_VERSION,
        max_version=MAX_VERSION,
        begin=_begin(served),
    )


def _begin(served: Sequence[tuple[int, int | None, int, int]]) -> HotHandler:
    def begin(context: RequestContext, request: Any) -> Answer:
        module = response_module(API_KEY, context.api_version)
        error = ErrorCode.none if _is_valid(context.api_version, request) else ErrorCode.invalid_request
        rows = tuple(
            module.ApiVersion(
                api_key=key,
                min_version=minimum if advertised is None else advertised,
                max_version=maximum,
            )
            for key, advertised, minimum, maximum in served
            if error is ErrorCode.none
        )
        told = _features(context, module) if error is ErrorCode.none else {}
        response = build(module.ApiVersionsResponse, error_code=error, api_keys=rows, **told)
        return encode_response(API_KEY, context.correlation_id, response)

    return begin


def _features(context: RequestContext, module: Any) -> dict[str, Any]:
    """The features' fields of an answer that has them; before v4 one whose least version is 0 is not told as supported."""
    if context.api_version < FIRST_WITH_FEATURES:
        return {}
    supported = tuple(
        module.SupportedFeatureKey(name=name, min_version=0, max_version=level)
        for name, level in FEATURES.items()
    )
    finalized = tuple(
        module.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in FEATURES.items()
    )
    return {
        "supported_features": supported if context.api_version >= FIRST_WITH_MIN_VERSION_0 else (),
        "finalized_features_epoch": max(context.services.metadata_log.last_offset, 0),
        "finalized_features": finalized,
    }


def _is_valid(version: int, request: Any) -> bool:
    if version < 3:
        return True
    return all(
        _SOFTWARE_NAME.fullmatch(text)
        for text in (request.client_software_name, request.client_software_version)
    )
