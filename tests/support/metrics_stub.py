"""A metrics listener for tests of the console: answers what the test has put in."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass
class MetricsStub:
    """What the listener answers: `metrics` as Prometheus' text or a function that returns it, `views` by
    operation; `asked` are the questions that came.
    """

    url: str = ""
    metrics: str | Callable[[], str] = ""
    ready: tuple[int, str] = (200, "ready")
    views: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def answer(self, target: str) -> tuple[int, str]:
        parts = urlsplit(target)
        if parts.path == "/metrics":
            return 200, self.metrics if isinstance(self.metrics, str) else self.metrics()
        if parts.path == "/readyz":
            return self.ready
        operation = parts.path.removeprefix("/view/")
        self.asked.append((operation, dict(parse_qsl(parts.query))))
        if operation not in self.views:
            return 404, json.dumps({"error": f"there is no operation {operation}"})
        return 200, json.dumps(self.views[operation])


@contextmanager
def metrics_stub() -> Iterator[MetricsStub]:
    """Yield a listener that answers on a free port."""
    stub = MetricsStub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = stub.answer(self.path)
            content = body.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
