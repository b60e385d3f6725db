"""A collector of OpenTelemetry for tests: an HTTP server that decodes exports, and answers as a test says."""

from __future__ import annotations

import gzip
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, Queue
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

TIMEOUT_S = 60.0


@dataclass
class Export:
    """A decoded export: its request, the attributes of the resource, the metrics by name, and the reply that
    it gets.
    """

    path: str
    headers: dict[str, str]
    resource: dict[str, str]
    metrics: dict[str, Any]
    reply: Reply | None = None

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of a series of a counter or gauge; None where the export has none."""
        metric = self.metrics.get(name)
        if metric is None:
            return None
        for point in getattr(metric, metric.WhichOneof("data")).data_points:
            if labels.items() <= attributes(point.attributes).items():
                return float(point.as_int if point.HasField("as_int") else point.as_double)
        return None


@dataclass
class Reply:
    """How the receiver answers. While `held` is not set, it does not answer at all."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    held: threading.Event | None = None


def attributes(pairs: Any) -> dict[str, str]:
    return {pair.key: pair.value.string_value for pair in pairs}


def decoded(path: str, headers: Mapping[str, str], body: bytes) -> Export:
    message = ExportMetricsServiceRequest.FromString(gzip.decompress(body))
    (of_resource,) = message.resource_metrics
    (of_scope,) = of_resource.scope_metrics
    metrics = {metric.name: metric for metric in of_scope.metrics}
    assert len(metrics) == len(of_scope.metrics)
    lower = {name.lower(): value for name, value in headers.items()}
    return Export(path, lower, attributes(of_resource.resource.attributes), metrics)


class OtlpReceiver:
    """The server as a context manager. `reply` may be changed between two exports."""

    def __init__(self, port: int = 0, context: ssl.SSLContext | None = None) -> None:
        self.exports: Queue[Export] = Queue()
        self.reply = Reply()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                reply = receiver.reply
                export = decoded(self.path, dict(self.headers.items()), body)
                export.reply = reply
                receiver.exports.put(export)
                if reply.held is not None:
                    reply.held.wait(TIMEOUT_S)
                self.send_response(reply.status)
                for name, value in {"Content-Type": "application/x-protobuf", **reply.headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """Print nothing: a gateway that gives an export up hangs up."""

        self._server = Server(("127.0.0.1", port), Handler)
        self._scheme = "http" if context is None else "https"
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    @property
    def url(self) -> str:
        return f"{self._scheme}://{self.address}/v1/metrics"

    def next(self) -> Export:
        """Return the next export, or wait for it."""
        return self.exports.get(timeout=TIMEOUT_S)

    def newest(self) -> Export | None:
        """Return the last of the exports that have arrived and were not taken yet."""
        found = None
        while True:
            try:
                found = self.exports.get_nowait()
            except Empty:
                return found

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.reply.held is not None:
            self.reply.held.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
