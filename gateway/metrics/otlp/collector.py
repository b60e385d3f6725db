"""One export as an HTTP request to the collector, and what the answer means."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from typing import Final

import httpx
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

TIMEOUT_S: Final = 10.0
"""Time for an export, from the connection to the whole answer; then the export has failed."""
MAX_ANSWER_BYTES: Final = 64 * 1024
"""Bytes of an answer; a longer one is taken for something else than OTLP."""
MAX_PAUSE_S: Final = 300.0
"""The longest pause that a collector can ask for."""
_PAUSING: Final = (429, 502, 503, 504)
"""The answers whose `Retry-After` counts."""
_TYPE: Final = "application/x-protobuf"
_MAX_DETAIL: Final = 200


class ExportFailed(Exception):
    """The collector has not taken an export, or not all of it. The message is a sentence for the log.

    `kind` is the same for failures that one line of the log tells. `pause_s` is the time for which the collector wants no further export.
    """

    def __init__(self, kind: str, detail: str = "", pause_s: float = 0.0) -> None:
        super().__init__(f"{kind}: {_shown(detail)}" if detail else kind)
        self.kind = kind
        self.pause_s = pause_s


class Collector:
    """A collector behind a URL, over at most one connection."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        # httpx writes a line for each request, with its whole URL
        logging.getLogger("httpx").setLevel(logging.WARNING)
        self._url = url
        self._headers = headers
        self._client: httpx.AsyncClient | None = None

    async def send(self, body: bytes) -> None:
        """Send an export. Raises ExportFailed."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                status, pause, answer = await self._post(body)
        except (TimeoutError, httpx.TimeoutException):
            raise ExportFailed(f"it does not answer within {TIMEOUT_S:g} s") from None
        except (httpx.HTTPError, OSError, ValueError, ImportError) as error:
            # the last two: the environment names a proxy that httpx does not know
            raise ExportFailed("it can't be reached", str(error) or type(error).__name__) from None
        if status != httpx.codes.OK:
            raise ExportFailed(f"it answers with status {status}", pause_s=_pause_s(status, pause))
        _check(answer)

    async def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            await self._client.aclose()

    def _open(self) -> httpx.AsyncClient:
        """Read certificates and proxies, which takes tens of milliseconds. Raises OSError, ValueError, ImportError."""
        own = {"content-type": _TYPE, "content-encoding": "gzip", "accept-encoding": "identity"}
        return httpx.AsyncClient(
            headers={**self._headers, **own},
            verify=ssl.create_default_context(),
            timeout=TIMEOUT_S,
            limits=httpx.Limits(max_connections=1),
        )

    async def _post(self, body: bytes) -> tuple[int, str, bytes]:
        """Return the status of the answer, its `Retry-After`, and the beginning of its content."""
        content = bytearray()
        if self._client is None:
            self._client = await asyncio.to_thread(self._open)
        async with self._client.stream("POST", self._url, content=body) as answer:
            async for piece in answer.aiter_raw():
                content += piece
                if len(content) > MAX_ANSWER_BYTES:
                    break
            return answer.status_code, answer.headers.get("retry-after", ""), bytes(content)


def _check(answer: bytes) -> None:
    """Raise ExportFailed unless the collector has taken all values."""
    message = _message(answer)
    if message is None:
        raise ExportFailed("it answers with something else than OTLP; does the URL lead to a collector?")
    refused = message.partial_success.rejected_data_points
    if refused:
        raise ExportFailed(
            "it refuses some values", f"{refused} values; {message.partial_success.error_message}"
        )


def _message(answer: bytes) -> ExportMetricsServiceResponse | None:
    message = ExportMetricsServiceResponse()
    try:
        message.ParseFromString(answer)
    except DecodeError:
        return None
    return message if len(answer) <= MAX_ANSWER_BYTES else None


def _pause_s(status: int, retry_after: str) -> float:
    is_number = retry_after.isascii() and retry_after.isdecimal()
    return min(float(retry_after), MAX_PAUSE_S) if status in _PAUSING and is_number else 0.0


def _shown(detail: str) -> str:
    """Return a text of the other side for one line of the log."""
    return "".join(letter if letter.isprintable() else " " for letter in detail[:_MAX_DETAIL])
