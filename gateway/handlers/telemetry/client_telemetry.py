"""GetTelemetrySubscriptions (key 71, version 0): tell a client which metrics to push, how often, and how
(KIP-714). Rights: none.

The handler gives an id to a client without one. The client is asked for the metrics of all subscriptions that
match it, at the shortest of their intervals; without any it is asked for none, and asks again after five
minutes. A client that asks again before its interval has passed gets THROTTLING_QUOTA_EXCEEDED, unless its
subscriptions have changed, or its last push was refused with UNKNOWN_SUBSCRIPTION_ID or
UNSUPPORTED_COMPRESSION_TYPE. Kafka offers the API only where a plugin receives metrics; Seqgate where
`seqgate[otlp]` is installed. In `runtime/telemetry.py` `Subscriptions.choose` decides what the client
pushes, and `ClientInstance.ask` whether it asks too early. Source: Kafka's
ClientMetricsManager.processGetTelemetrySubscriptionRequest.

PushTelemetry (key 72, version 0): take metrics that a client pushes (KIP-714). Rights: none.

The metrics are an OTLP MetricsData message. The gateway keeps the newest value of each series in memory for
the metrics endpoint, and adds up the deltas of counters. Errors, in the order of the checks (what
decompresses to too much is found last):

    INVALID_REQUEST               the id of the client is 0 or 1, or its last push was its terminating one
    THROTTLING_QUOTA_EXCEEDED     the push comes too early, and is not its terminating one
    UNKNOWN_SUBSCRIPTION_ID       the subscriptions of the client have changed; the client asks for them again
    UNSUPPORTED_COMPRESSION_TYPE  the codec is none of Kafka's
    TELEMETRY_TOO_LARGE           the metrics are larger than `telemetry.max.bytes`, or decompress to more
                                  than four times as much
    THROTTLING_QUOTA_EXCEEDED     too many pushes wait for their decoding
    INVALID_RECORD                the metrics can't be decoded

In `runtime/telemetry.py` `Telemetry.push` begins, `ClientInstance.push` decides whether the client may push
now, and `_decode` decodes. Source: Kafka's ClientMetricsManager.processPushTelemetryRequest.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from functools import partial
from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.changes import fresh_id
from seqgate.gateway.runtime.telemetry import Push, Telemetry
from seqgate.gateway.telemetry.subscriptions import ClientDescription
from seqgate.log.format.compression import GZIP, LZ4, SNAPPY, ZSTD

PACKAGE: Final = "opentelemetry.proto"
"""The package that decodes what clients push; an extra of the installation has it."""
ACCEPTED_COMPRESSION_TYPES: Final = (ZSTD, LZ4, GZIP, SNAPPY)
"""The codecs that clients may choose, best first, in Kafka's order. Clients may always push uncompressed."""


async def handle_get_subscriptions(context: RequestContext[Telemetry], request: Any) -> Any:
    client_instance_id = request.client_instance_id or fresh_id()
    choice = context.services.subscription(client_of(context, client_instance_id))
    if isinstance(choice, ErrorCode):
        return context.answer(
            error_code=choice,
            client_instance_id=None,
            subscription_id=0,
            accepted_compression_types=(),
            push_interval=timedelta(0),
            telemetry_max_bytes=0,
            delta_temporality=False,
            requested_metrics=(),
        )
    return context.answer(
        error_code=ErrorCode.none,
        client_instance_id=client_instance_id,
        subscription_id=choice.subscription_id,
        accepted_compression_types=ACCEPTED_COMPRESSION_TYPES,
        push_interval=timedelta(milliseconds=choice.push_interval_ms),
        telemetry_max_bytes=context.services.max_bytes,
        delta_temporality=True,
        requested_metrics=choice.requested_metrics,
    )


_NO_ID: Final = uuid.UUID(int=0)


async def handle_push(context: RequestContext[Telemetry], request: Any) -> Any:
    """Take the metrics, and answer once they are decoded."""
    client = client_of(context, request.client_instance_id or _NO_ID)
    push = Push(
        request.subscription_id, request.terminating, request.compression_type, bytes(request.metrics)
    )
    outcome = await context.services.push(client, push)
    if context.charge is not None:
        context.charge.busy_s += outcome.busy_s
    return context.answer(error_code=outcome.error)


# Describes the client that sent a telemetry request.

_KEY: Final = "telemetry"


def client_of(context: RequestContext[Telemetry], client_instance_id: uuid.UUID) -> ClientDescription:
    """Return the client of this id, and let the gateway forget its requests when the connection closes. As in
    Kafka, a connection stands for the client that used it last.
    """
    peer = context.peer
    peer.when_gone(_KEY, partial(context.services.disconnected, client_instance_id))
    return ClientDescription(
        client_instance_id,
        context.client_id,
        peer.software.name,
        peer.software.version,
        peer.peer_host,
        peer.peer_port,
    )


GET_TELEMETRY_SUBSCRIPTIONS_API = Api(
    key=71,
    versions=(0, 0),
    reaches=api.telemetry,
    handle=handle_get_subscriptions,
    is_eager=True,
    package=PACKAGE,
)
PUSH_TELEMETRY_API = Api(key=72, versions=(0, 0), reaches=api.telemetry, handle=handle_push, package=PACKAGE)
