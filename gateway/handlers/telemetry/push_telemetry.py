"""PushTelemetry (key 72, version 0): take metrics that a client pushes (KIP-714).

The metrics are an OTLP MetricsData message. The gateway keeps the newest value of each series in memory for the metrics endpoint, and
adds up the deltas of counters. Errors, in the order of the checks:

    INVALID_REQUEST               the id of the client is 0 or 1, or its last push was its terminating one
    THROTTLING_QUOTA_EXCEEDED     the push comes too early, or too many pushes wait for their decoding
    UNKNOWN_SUBSCRIPTION_ID       the subscriptions of the client have changed; the client asks for them again
    UNSUPPORTED_COMPRESSION_TYPE  the codec is none of Kafka's
    TELEMETRY_TOO_LARGE           the metrics are larger than `telemetry.max.bytes`, or decompress to more than four times as much
    INVALID_RECORD                the metrics can't be decoded

Source: Kafka's ClientMetricsManager.processPushTelemetryRequest.
"""

from __future__ import annotations

import uuid
from typing import Any, Final

from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.telemetry.client_of import client_of
from gateway.protocol.messages import build, response_module
from gateway.runtime.telemetry.telemetry import Push, Telemetry

API_KEY: Final = 72
_NO_ID: Final = uuid.UUID(int=0)


async def handle(context: RequestContext[Telemetry], request: Any) -> Any:
    """Take the metrics, and answer once they are decoded."""
    client = client_of(context, request.client_instance_id or _NO_ID)
    push = Push(
        request.subscription_id, request.terminating, request.compression_type, bytes(request.metrics)
    )
    outcome = await context.services.push(client, push)
    if context.charge is not None:
        context.charge.busy_s += outcome.busy_s
    module = response_module(API_KEY, context.api_version)
    return build(module.PushTelemetryResponse, error_code=outcome.error)


API = Api(
    key=API_KEY,
    name="PushTelemetry",
    min_version=0,
    max_version=0,
    reaches=api.telemetry,
    handle=handle,
)
