"""Sends the metrics at each interval; the log says when exports begin to fail, and work again."""

from __future__ import annotations

import asyncio
import gzip
import logging
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import urlsplit

import httpx
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2 as otlp
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from prometheus_client.core import Metric as Family

from seqgate import __version__
from seqgate.gateway.config import Config
from seqgate.gateway.config.metrics import OTLP_ENDPOINT, OTLP_HEADERS, OTLP_INTERVAL_MS, parse_headers
from seqgate.gateway.durations import BOUNDS_S, Durations
from seqgate.gateway.metrics.metric import Metric, MetricKind, Sample, Sources
from seqgate.gateway.metrics.table import SUBJECTS, all_of, by_metric, process_families
from seqgate.gateway.tasks import end_tasks

logger = logging.getLogger(__name__)

STOP_TIMEOUT_S: Final = 2.0
"""Time for the export of a gateway that stops; then it stops without."""


class OtlpExporter:
    """Exports of one gateway to one collector, one after the other. Values count since the start: the
    next export tells what a failed one would have told, and nothing is sent twice.
    """

    def __init__(self, config: Config, sources: Sources) -> None:
        url = config.str(OTLP_ENDPOINT)
        headers = config.optional_str(OTLP_HEADERS)
        self._collector = Collector(url, {} if headers is None else parse_headers(headers))
        self._shown = urlsplit(url)._replace(query="", fragment="").geturl()
        """The URL without its query, which may have a key."""
        self._interval_s = config.int(OTLP_INTERVAL_MS) / 1000
        self._sources = sources
        node = sources.services.node
        self._attributes = {
            "service.name": "seqgate",
            "service.instance.id": str(node.node_id),
            "service.version": __version__,
            "seqgate.cluster.id": node.cluster_id,
        }
        self._failure: str | None = None
        """The kind of the failure that the log told last; None while exports work."""
        self._resumes_s = 0.0
        """The time of the event loop until which the collector wants no export."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to export, at once and then at each interval."""
        self._sources.loop_delay.start()
        logger.info("sending metrics to %s every %g s", self._shown, self._interval_s)
        self._task = asyncio.create_task(self._repeat(), name="otlp")

    async def stop(self) -> None:
        """Export the last values, as far as the collector takes them in time, and end."""
        if self._task is not None:
            await end_tasks(self._task)
            self._sources.loop_delay.stop()
            try:
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await self._export()
            except TimeoutError:
                logger.warning("the collector %s did not take the last metrics in time", self._shown)
        await self._collector.close()

    async def _repeat(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            await self._export()
            due_s = max(due_s + self._interval_s, loop.time())
            await asyncio.sleep(due_s - loop.time())

    async def _export(self) -> None:
        """Send the present values. Failures are logged, and not raised."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._resumes_s:
            return
        try:
            async with self._sources.reading:
                encoded = await self._encoded()
            await self._collector.send(encoded)
        except ExportFailed as failure:
            self._resumes_s = loop.time() + failure.pause_s
            if failure.kind != self._failure:
                logger.warning("the collector %s takes no metrics: %s", self._shown, failure)
            self._failure = failure.kind
        except Exception as error:
            # a mistake of the gateway must neither end the exports nor fill the log
            if repr(error) != self._failure:
                logger.exception("the metrics for the collector %s can't be read", self._shown)
            self._failure = repr(error)
        else:
            if self._failure is not None:
                logger.info("the collector %s takes metrics again", self._shown)
            self._failure = None

    async def _encoded(self) -> bytes:
        """Return the present values as a request: the loop reads them in slices, a thread encodes them."""
        now_ms = self._sources.services.node.clock.now_ms()
        moment = Moment(now_ms * 1_000_000, self._sources.gateway.started_at_ms * 1_000_000)
        metrics: list[otlp.Metric] = []
        for subject in SUBJECTS:
            samples = await all_of(subject.read(self._sources))
            metrics += await asyncio.to_thread(encoded_samples, samples, moment)
        return await asyncio.to_thread(
            lambda: encoded_request(
                self._attributes, [*metrics, *encoded_families(process_families(), moment)]
            )
        )


# One export as an HTTP request to the collector, and what the answer means.

TIMEOUT_S: Final = 10.0
"""Time for an export, from the connection to the whole answer; then the export has failed."""
MAX_ANSWER_BYTES: Final = 64 * 1024
"""Bytes of an answer; a longer one is taken for something else than OTLP."""
MAX_PAUSE_S: Final = 300.0
_PAUSING: Final = (429, 502, 503, 504)
_TYPE: Final = "application/x-protobuf"
_MAX_DETAIL: Final = 200


class ExportFailed(Exception):
    """The collector has not taken an export, or not all of it. The message is a sentence for the log. One
    line of the log tells failures of one `kind`; the collector wants no further export for `pause_s`.
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
        if self._client is not None:
            await self._client.aclose()

    def _open(self) -> httpx.AsyncClient:
        """Read certificates and proxies: tens of milliseconds. Raises OSError, ValueError, ImportError."""
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
    message = ExportMetricsServiceResponse()
    try:
        message.ParseFromString(answer)
        is_otlp = len(answer) <= MAX_ANSWER_BYTES
    except DecodeError:
        is_otlp = False
    if not is_otlp:
        raise ExportFailed("it answers with something else than OTLP; does the URL lead to a collector?")
    refused = message.partial_success.rejected_data_points
    if refused:
        raise ExportFailed(
            "it refuses some values", f"{refused} values; {message.partial_success.error_message}"
        )


def _pause_s(status: int, retry_after: str) -> float:
    """Return the pause that `Retry-After` wants, which has seconds or a date."""
    if status not in _PAUSING:
        return 0.0
    if retry_after.isascii() and retry_after.isdecimal():
        return min(float(retry_after), MAX_PAUSE_S)
    try:
        until_s = parsedate_to_datetime(retry_after).timestamp()
    except (ValueError, OverflowError):
        return 0.0
    return max(0.0, min(until_s - time.time(), MAX_PAUSE_S))


def _shown(detail: str) -> str:
    """Return a text of the other side for one line of the log."""
    return "".join(letter if letter.isprintable() else " " for letter in detail[:_MAX_DETAIL])


# The values of metrics as messages of OTLP.

_SCOPE: Final = "seqgate"
_CUMULATIVE: Final = otlp.AGGREGATION_TEMPORALITY_CUMULATIVE
_UNITS: Final = {"seconds": "s", "bytes": "By"}
"""Units for words in names; a collector that writes for Prometheus adds no second one to a name."""
_OF_FAMILIES: Final = {"counter": MetricKind.COUNTER, "gauge": MetricKind.GAUGE, "info": MetricKind.INFO}


@dataclass(frozen=True, slots=True)
class Moment:
    """The time of an export, and the start of the gateway, since which counters count, in nanoseconds."""

    now_ns: int
    started_at_ns: int


def encoded_request(attributes: Mapping[str, str], metrics: Iterable[otlp.Metric]) -> bytes:
    """Return an export as bytes, compressed by gzip. `attributes` are those of the resource."""
    scope = InstrumentationScope(name=_SCOPE, version=attributes.get("service.version", ""))
    of_scope = otlp.ScopeMetrics(scope=scope, metrics=metrics)
    resource = Resource(attributes=_attributes(attributes))
    request = ExportMetricsServiceRequest(
        resource_metrics=[otlp.ResourceMetrics(resource=resource, scope_metrics=[of_scope])]
    )
    return gzip.compress(request.SerializeToString(), compresslevel=1)


def encoded_samples(samples: Iterable[Sample], moment: Moment) -> list[otlp.Metric]:
    return [_metric(metric, found, moment) for metric, found in by_metric(samples).items()]


def encoded_families(families: Iterable[Family], moment: Moment) -> Iterator[otlp.Metric]:
    """Yield the metrics of the process as prometheus_client gives them. None of them is a histogram."""
    for family in families:
        kind = _OF_FAMILIES.get(family.type)
        # A family of counters also has the times at which its series began.
        values = [entry for entry in family.samples if not entry.name.endswith("_created")]
        if kind is None or not values:
            continue
        labels = tuple(values[0].labels)
        metric = Metric(values[0].name, kind, family.documentation, labels)
        samples = [metric.at(entry.value, *(entry.labels[label] for label in labels)) for entry in values]
        yield _metric(metric, samples, moment)


def _metric(metric: Metric, samples: Iterable[Sample], moment: Moment) -> otlp.Metric:
    words = metric.name.split("_")
    unit = next((unit for word, unit in _UNITS.items() if word in words), "")
    found = otlp.Metric(name=metric.name, description=metric.doc, unit=unit)
    match metric.kind:
        case MetricKind.HISTOGRAM:
            found.histogram.aggregation_temporality = _CUMULATIVE
            found.histogram.data_points.extend(_histogram(sample, moment) for sample in samples)
        case MetricKind.COUNTER:
            found.sum.aggregation_temporality = _CUMULATIVE
            found.sum.is_monotonic = True
            found.sum.data_points.extend(
                _number(sample, moment.now_ns, moment.started_at_ns) for sample in samples
            )
        case MetricKind.GAUGE | MetricKind.INFO:
            found.gauge.data_points.extend(_number(sample, moment.now_ns) for sample in samples)
    return found


def _number(sample: Sample, now_ns: int, started_at_ns: int = 0) -> otlp.NumberDataPoint:
    value = sample.value
    assert not isinstance(value, Durations)
    point = otlp.NumberDataPoint(
        attributes=_labels(sample), start_time_unix_nano=started_at_ns, time_unix_nano=now_ns
    )
    if isinstance(value, int):
        point.as_int = int(value)  # a bool counts as 0 or 1
    else:
        point.as_double = value
    return point


def _histogram(sample: Sample, moment: Moment) -> otlp.HistogramDataPoint:
    durations = sample.value
    assert isinstance(durations, Durations)
    counts = list(durations.counts)  # the event loop may count meanwhile
    return otlp.HistogramDataPoint(
        attributes=_labels(sample),
        count=sum(counts),
        sum=durations.sum_s,
        bucket_counts=counts,
        explicit_bounds=BOUNDS_S,
        start_time_unix_nano=moment.started_at_ns,
        time_unix_nano=moment.now_ns,
    )


def _labels(sample: Sample) -> list[KeyValue]:
    return _attributes(dict(zip(sample.metric.labels, sample.labels, strict=True)))


def _attributes(values: Mapping[str, str]) -> list[KeyValue]:
    return [KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in values.items()]
