"""Settings of the export of metrics to a collector of OpenTelemetry, and the form of their values."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Final
from urllib.parse import unquote, urlsplit

from gateway.config.setting import Setting, SettingType, SettingValue

OTLP_ENDPOINT: Final = "seqgate.otlp.endpoint"
OTLP_INTERVAL_MS: Final = "seqgate.otlp.interval.ms"
OTLP_HEADERS: Final = "seqgate.otlp.headers"
_PACKAGES: Final = ("httpx", "opentelemetry.proto")
"""The packages of `seqgate[otlp]`."""
_SECTION: Final = "Metrics and health"
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A name of a header, as HTTP allows it."""
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


def missing_package() -> str | None:
    """Return the sentence about a package that an export needs and that is not installed; None when all are."""
    for name in _PACKAGES:
        try:
            is_there = find_spec(name) is not None
        except ModuleNotFoundError:
            is_there = False
        if not is_there:
            return f"the package {name}, which {OTLP_ENDPOINT} needs, is not installed; run: pip install 'seqgate[otlp]'"
    return None


def parse_headers(text: str) -> dict[str, str]:
    """Return the headers of `NAME=VALUE,NAME=VALUE` with percent-encoded values. Raises ValueError with a sentence without any value."""
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


def _headers_complaint(value: SettingValue) -> str | None:
    try:
        parse_headers(str(value))
    except ValueError as error:
        return str(error)
    return None


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


OTLP_SETTINGS: Final = (
    Setting(
        name=OTLP_ENDPOINT,
        type=SettingType.STRING,
        default=None,
        check=_endpoint_complaint,
        section=_SECTION,
        doc="URL to which the gateway sends all metrics by OTLP over HTTP, such as `http://127.0.0.1:4318/v1/metrics`. Unset: it sends none. "
        "Needs `pip install 'seqgate[otlp]'`.",
    ),
    Setting(
        name=OTLP_INTERVAL_MS,
        type=SettingType.INT,
        default=15_000,
        minimum=1_000,
        maximum=3_600_000,
        section=_SECTION,
        doc="Time between two exports of metrics to the collector.",
    ),
    Setting(
        name=OTLP_HEADERS,
        type=SettingType.PASSWORD,
        default=None,
        sensitive=True,
        check=_headers_complaint,
        section=_SECTION,
        doc="Headers of each export, as `NAME=VALUE,NAME=VALUE` with percent-encoded values, such as `authorization=Bearer%20TOKEN`.",
    ),
)
