"""Settings of client telemetry: the metrics that clients push (KIP-714)."""

from __future__ import annotations

from functools import partial

from gateway.config.setting import whole_number

_number = partial(whole_number, "Client metrics")

TELEMETRY_SETTINGS = (
    _number(
        "telemetry.max.bytes",
        1 << 20,
        "Bytes of metrics in one push of a client, as they arrive. A larger push gets TELEMETRY_TOO_LARGE, and so does a push that "
        "decompresses to more than four times as many.",
    ),
    _number(
        "seqgate.telemetry.clients.max",
        16_384,
        "Clients whose last telemetry requests the gateway remembers. With one more, the gateway forgets the client that asked least "
        "recently; that client may then ask earlier than its interval allows.",
        dynamic=True,
    ),
    _number(
        "seqgate.telemetry.series.max",
        50_000,
        "Series of pushed metrics of all clients that the gateway keeps. Further series are dropped and counted. With 0 it keeps none.",
        minimum=0,
        dynamic=True,
    ),
    _number(
        "seqgate.telemetry.series.max.per.client",
        1_000,
        "Series of pushed metrics of one client that the gateway keeps. Further series are dropped and counted.",
        minimum=0,
        dynamic=True,
    ),
    _number(
        "seqgate.telemetry.subscriptions.max",
        1_000,
        "Subscriptions of client metrics that may exist. One more gets POLICY_VIOLATION.",
        dynamic=True,
    ),
)
