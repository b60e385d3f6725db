"""The client of the gateway's metrics listener (`seqgate.metrics.listener`). Raises ControlError."""

from __future__ import annotations

import http.client
import time
import urllib.parse
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import msgspec
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from seqgate.gateway.admin.metrics import GatewayMetrics, MetricsPage, MetricsRequest, with_prefix
from seqgate.gateway.admin.request import ControlError, Request
from seqgate.gateway.console.asking.gateways import SILENT_S, Reply

TIMEOUT_S: Final = 5.0
MOST_BYTES: Final = 64 << 20
"""The largest answer that is read; a larger one is an error."""
_OK: Final = 200
_UNAVAILABLE: Final = 503

A = TypeVar("A")


class _Refusal(msgspec.Struct):
    """The answer of the listener to a question that it refuses."""

    error: str = "the listener refused the question"


class MetricsClient:
    """Asks the metrics listener of one gateway. Thread-safe: each question has a connection of its own. One
    that gave no answer in time is not asked again for some seconds.
    """

    def __init__(self, url: str) -> None:
        """Prepare for the listener at `url`, such as http://127.0.0.1:9644. Raises ValueError."""
        parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
        try:
            is_usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        except ValueError:  # of a port that is no number, or too high
            is_usable = False
        if not is_usable:
            raise ValueError(f"{url!r} must be a URL such as http://127.0.0.1:9644")
        self._silent_until = 0.0
        self.url = urllib.parse.urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))
        self._parts = parts

    def metrics(self) -> str:
        _, body = self._get("/metrics", (_OK,))
        return body.decode(errors="replace")

    def readiness(self) -> tuple[bool, str]:
        """Return whether the gateway says that it is ready, and its words."""
        status, body = self._get("/readyz", (_OK, _UNAVAILABLE))
        return status == _OK, body.decode(errors="replace").strip()

    def view(self, request: Request[A]) -> A:
        """Return the answer to a request of the control socket that only reads."""
        if isinstance(request, MetricsRequest):
            return cast("A", self._metrics_page(request.prefix))
        fields = msgspec.to_builtins(request)
        fields.pop("operation")
        operation = request.operation_name()
        query = urllib.parse.urlencode(
            [(name, _text(one)) for name, value in fields.items() for one in _values(value)]
        )
        _, body = self._get(f"/view/{urllib.parse.quote(operation, safe='')}?{query}", (_OK,))
        try:
            answer: A = msgspec.json.decode(body, type=request.answer_type())
        except msgspec.MsgspecError as error:
            raise ControlError(f"the answer of {self.url} to {operation} has another form: {error}") from None
        return answer

    def reply(self, request: Request[A]) -> Reply[A]:
        """Return the answer to a request as that of a gateway, or why there is none."""
        try:
            return Reply(self.url, self.url, self.view(request))
        except ControlError as error:
            return Reply(self.url, self.url, None, str(error))

    def _metrics_page(self, prefix: str) -> MetricsPage:
        """Return metrics as the gateway answers them over the Kafka protocol: no view has them."""
        text = self.metrics()
        node = next(iter(samples(text, ("seqgate_node_info",))), None)
        node_id = -1 if node is None else int(node.labels["node_id"])
        return MetricsPage([GatewayMetrics(node_id, with_prefix(text, prefix))], [node_id])

    def _get(self, path: str, accepted: tuple[int, ...]) -> tuple[int, bytes]:
        if time.monotonic() < self._silent_until:
            raise self._unreachable("no answer in time")
        connect = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        connection = connect(self._parts.hostname or "", self._parts.port, timeout=TIMEOUT_S)
        try:
            connection.request("GET", self._parts.path.rstrip("/") + path)
            response = connection.getresponse()
            body = response.read(MOST_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, TimeoutError):
                self._silent_until = time.monotonic() + SILENT_S
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise self._unreachable(reason) from None
        finally:
            connection.close()
        if len(body) > MOST_BYTES:
            raise ControlError(f"the answer of {self.url} is larger than {MOST_BYTES >> 20} MiB")
        if response.status not in accepted:
            raise ControlError(_refusal(body, response.status))
        return response.status, body

    def _unreachable(self, reason: str) -> ControlError:
        return ControlError(
            f"the metrics listener at {self.url} does not answer: {reason}; set seqgate.metrics.listener of "
            "the gateway, and give its address by --metrics"
        )


def _values(value: Any) -> Sequence[Any]:
    """Return the values of a field: several of a list, none of None, or of a mapping, which no view takes."""
    if isinstance(value, list | tuple):
        return value
    return () if value is None or isinstance(value, dict) else (value,)


def _text(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _refusal(body: bytes, status: int) -> str:
    try:
        return msgspec.json.decode(body, type=_Refusal).error
    except msgspec.MsgspecError:
        return f"the metrics listener answers with status {status}"


# Reads the few metrics that the charts need from Prometheus' text. Pure.


def samples(text: str, wanted: Iterable[str]) -> list[Sample]:
    names = set(wanted)
    return [sample for sample in samples_of(text, tuple(names)) if sample.name in names]


def samples_of(text: str, prefixes: tuple[str, ...]) -> Iterator[Sample]:
    """Yield the samples whose lines begin with one of the prefixes. Raises ControlError for other text."""
    # str.splitlines also splits at characters that may stand in a label, such as a group id of any client
    lines = [line for line in text.split("\n") if line.startswith(prefixes)]
    try:
        for family in text_string_to_metric_families("\n".join(lines) + "\n"):
            yield from family.samples
    except (ValueError, LookupError) as error:
        raise ControlError(f"the metrics are not understood: {error}") from None


def buckets(found: Iterable[Sample], name: str, **labels: str) -> dict[float, float]:
    """Return a histogram's cumulative counts by upper bound, summed over labels that are not given."""
    sums: dict[float, float] = defaultdict(float)
    for sample in found:
        if sample.name == f"{name}_bucket" and labels.items() <= sample.labels.items():
            sums[float(sample.labels["le"])] += sample.value
    return dict(sums)


def quantile(before: Mapping[float, float], after: Mapping[float, float], share: float) -> float | None:
    """Return the value below which a share of the observations between two readings of a histogram lies.

    None without observations. The value is interpolated inside its bucket, as Prometheus does.
    """
    bounds = sorted(after)
    counts = [max(0.0, after[bound] - before.get(bound, 0.0)) for bound in bounds]
    if not counts or counts[-1] <= 0:
        return None
    rank = share * counts[-1]
    lower, below = 0.0, 0.0
    for bound, count in zip(bounds, counts, strict=True):
        if count >= rank:
            if bound == float("inf"):
                return lower
            inside = count - below
            return bound if inside <= 0 else lower + (bound - lower) * (rank - below) / inside
        lower, below = bound, count
    return lower
