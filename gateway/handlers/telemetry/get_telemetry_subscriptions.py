"""GetTelemetrySubscriptions (key 71, version 0): tell a client which metrics to push, how often, and how (KIP-714).

A client without an id gets one. The client is asked for the metrics of all subscriptions that match it, at the shortest of their
intervals; without any it is asked for none, and asks again after five minutes. A client that asks again before its interval has passed
gets THROTTLING_QUOTA_EXCEEDED, unless its subscriptions have changed, or its last push was refused with UNKNOWN_SUBSCRIPTION_ID or
UNSUPPORTED_COMPRESSION_TYPE. Kafka offers the API only where a plugin receives metrics; Seqgate always does. Source: Kafka's
ClientMetricsManager.processGetTelemetrySubscriptionRequest.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from kio.schema.errors import ErrorCode

from gateway.handlers.answering import api
from gateway.handlers.answering.api import Api, RequestContext
from gateway.handlers.answering.changes import fresh_client_instance_id
from gateway.handlers.telemetry.client_of import client_of
from gateway.protocol.messages import build, response_module
from gateway.runtime.telemetry.telemetry import Telemetry
from log.format.compression import GZIP, LZ4, SNAPPY, ZSTD

API_KEY: Final = 71
ACCEPTED_COMPRESSION_TYPES: Final = (ZSTD, LZ4, GZIP, SNAPPY)
"""The codecs that clients may choose, best first, in Kafka's order. Clients may always push uncompressed."""


async def handle(context: RequestContext[Telemetry], request: Any) -> Any:
    """Return the client's subscription."""
    response = response_module(API_KEY, context.api_version).GetTelemetrySubscriptionsResponse
    client_instance_id = request.client_instance_id or fresh_client_instance_id()
    choice = context.services.subscription(client_of(context, client_instance_id))
    if isinstance(choice, ErrorCode):
        return build(
            response,
            error_code=choice,
            client_instance_id=None,
            subscription_id=0,
            accepted_compression_types=(),
            push_interval=timedelta(0),
            telemetry_max_bytes=0,
            delta_temporality=False,
            requested_metrics=(),
        )
    return build(
        response,
        error_code=ErrorCode.none,
        client_instance_id=client_instance_id,
        subscription_id=choice.subscription_id,
        accepted_compression_types=ACCEPTED_COMPRESSION_TYPES,
        push_interval=timedelta(milliseconds=choice.push_interval_ms),
        telemetry_max_bytes=context.services.max_bytes,
        delta_temporality=True,
        requested_metrics=choice.requested_metrics,
    )


API = Api(
    key=API_KEY,
    name="GetTelemetrySubscriptions",
    min_version=0,
    max_version=0,
    reaches=api.telemetry,
    handle=handle,
    is_eager=True,
)
