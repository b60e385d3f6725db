"""Settings of the metrics that the gateway shows and sends, and of those that clients push to it (KIP-714).
`telemetry/subscriptions.py` has the configurations of one subscription.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from seqgate.gateway.config.listeners import Listener, address_complaint, parse_listener
from seqgate.gateway.config.setting import Section, SettingValue, complaint_of

# Settings of the export of metrics to a collector of OpenTelemetry, and the form of their values.

OTLP_ENDPOINT: Final = "seqgate.otlp.endpoint"
OTLP_INTERVAL_MS: Final = "seqgate.otlp.interval.ms"
OTLP_HEADERS: Final = "seqgate.otlp.headers"
_METRICS = Section("Metrics and health")
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OWN: Final = frozenset(
    (
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "host",
        "te",
        "transfer-encoding",
    )
)
"""The headers that the exporter itself sends."""


def parse_headers(text: str) -> dict[str, str]:
    """Return the headers of `NAME=VALUE,…` (percent-encoded). Raises ValueError, which quotes no value."""
    headers: dict[str, str] = {}
    for number, item in enumerate(text.split(","), 1):
        name, equals, encoded = item.strip().partition("=")
        name, value = name.strip().lower(), unquote(encoded.strip())
        if not equals or not _NAME.fullmatch(name):
            raise ValueError(f"header {number} must have the form NAME=VALUE")
        if not value.isascii() or not value.isprintable():
            raise ValueError(f"the value of the header {name} must consist of printable ASCII characters")
        if name in _OWN:
            raise ValueError(f"the gateway itself sends the header {name}")
        headers[name] = value
    return headers


def _endpoint_complaint(value: SettingValue) -> str | None:
    try:
        url = urlsplit(str(value))
        is_whole = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_whole = False
    if not is_whole or not str(value).isprintable() or " " in str(value):
        return "the endpoint must be a whole URL, such as http://127.0.0.1:4318/v1/metrics"
    if "@" in url.netloc:
        return f"the endpoint must not have a user or a password; use {OTLP_HEADERS}"
    return None


METRICS_LISTENER: Final = "seqgate.metrics.listener"


def metrics_listener(address: str) -> Listener:
    """Return the listener of an address for the metrics, named as its setting. Raises ValueError."""
    return replace(parse_listener(address), name=METRICS_LISTENER)


METRICS_SETTINGS = (
    _METRICS.text(METRICS_LISTENER, None, check=address_complaint)(
        "HOST:PORT on which the gateway answers HTTP requests for /metrics, /healthz and /readyz, without a "
        "login. Unset: it does not. With `--workers` each worker takes the next port."
    ),
    _METRICS.number("seqgate.metrics.topics.max", 200, minimum=0, maximum=10_000)(
        "Topics with metrics of their own; the others share one series of each metric. A topic keeps its "
        "series."
    ),
    _METRICS.number("seqgate.metrics.groups.max", 200, minimum=0, maximum=10_000)(
        "Groups with a lag of their own, the largest lags first; the others share one series."
    ),
    _METRICS.switch("seqgate.metrics.views.everywhere", False)(
        "Whether /view/... also answers where the listener can be reached from other machines. Views show "
        "names of topics, groups, producers and transactional ids, and log lines; the console reads them."
    ),
    _METRICS.text(OTLP_ENDPOINT, None, check=_endpoint_complaint)(
        "URL to which the gateway sends all metrics of its own by OTLP over HTTP, such as "
        "`http://127.0.0.1:4318/v1/metrics`. Unset: it sends none. Needs `pip install 'seqgate[otlp]'`."
    ),
    _METRICS.whole(OTLP_INTERVAL_MS, 15_000, minimum=1_000, maximum=3_600_000)(
        "Time between two exports of metrics to the collector."
    ),
    _METRICS.secret(OTLP_HEADERS, None, check=complaint_of(parse_headers))(
        "Headers of each export, as `NAME=VALUE,NAME=VALUE` with percent-encoded values, such as "
        "`authorization=Bearer%20TOKEN`."
    ),
)


# Settings of client telemetry: the metrics that clients push (KIP-714).

_CLIENT_METRICS = Section("Client metrics")

TELEMETRY_SETTINGS = (
    _CLIENT_METRICS.number("telemetry.max.bytes", 1 << 20)(
        "Bytes of metrics in one push of a client, as they arrive. A larger push gets TELEMETRY_TOO_LARGE, "
        "and so does a push that decompresses to more than four times as many."
    ),
    _CLIENT_METRICS.number("seqgate.telemetry.clients.max", 16_384, dynamic=True)(
        "Clients whose last telemetry requests the gateway tracks. With one more, the gateway evicts "
        "the client that asked least recently; that client may then ask earlier than its interval allows."
    ),
    _CLIENT_METRICS.number("seqgate.telemetry.series.max", 50_000, minimum=0, dynamic=True)(
        "Series of pushed metrics of all clients that the gateway keeps. Further series are dropped and "
        "counted. With 0 it keeps none."
    ),
    _CLIENT_METRICS.number("seqgate.telemetry.series.max.per.client", 1_000, minimum=0, dynamic=True)(
        "Series of pushed metrics of one client that the gateway keeps. Further series are dropped and "
        "counted."
    ),
    _CLIENT_METRICS.number("seqgate.telemetry.subscriptions.max", 1_000, dynamic=True)(
        "Subscriptions of client metrics that may exist. One more gets POLICY_VIOLATION."
    ),
)
