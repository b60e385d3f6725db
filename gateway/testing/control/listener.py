"""Listens for programs that control a gateway under test."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from gateway.config.exposure import is_loopback
from gateway.config.listeners import parse_listener
from gateway.homes.home import StartFailed
from gateway.http import JSON, HttpAnswer, HttpRequest, HttpServer
from gateway.testing.broker_thread import BrokerThread, NotNow
from gateway.testing.control.openapi import description
from gateway.testing.control.orders import Orders
from gateway.testing.control.routes import ROUTES, Asked, Route

MAX_BODY_BYTES: Final = 64 << 20
"""Bytes of a request: the values of a topic to compare with."""
_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "::1"})


def address_complaint(address: str) -> str | None:
    """Return why the test control can't listen on an address; None if it can."""
    try:
        listener = parse_listener(address)
    except ValueError as error:
        return str(error)
    if "://" in address or not is_loopback(listener.host):
        return f"the test control listens on the loopback interface only, such as 127.0.0.1:9090, not on {address}"
    return None


class ControlListener:
    """Answers requests about one broker, in the event loop of `start`."""

    def __init__(self, broker: BrokerThread) -> None:
        self._broker = broker
        self._orders = Orders(broker.faulty.faults)
        self._turn = asyncio.Lock()
        methods = sorted({"HEAD", *(route.method for route in ROUTES)})
        self._server = HttpServer(self._answer, methods=methods, max_body_bytes=MAX_BODY_BYTES)

    async def start(self, address: str) -> str:
        """Listen; return HOST:PORT. Raises OSError."""
        listener = parse_listener(address)
        port = await self._server.start(listener.host, listener.port)
        return f"{address.rpartition(':')[0]}:{port}"

    async def stop(self) -> None:
        """Stop answering."""
        await self._server.stop()

    async def _answer(self, request: HttpRequest) -> HttpAnswer:
        # A page in a browser may reach this address. It can't set these two headers so.
        if request.host not in _HOSTS:
            return _json(403, {"error": "the Host header must name the loopback interface"})
        if request.body and not request.headers.get("content-type", "").startswith(JSON):
            return _json(415, {"error": f"a body must have the content type {JSON}"})
        if request.headers.get("origin") is not None:
            return _json(403, {"error": "requests of web pages are refused"})
        method = "GET" if request.method == "HEAD" else request.method
        if (method, request.path) == ("GET", "/openapi.json"):
            return _json(200, description())
        for route in ROUTES:
            names = route.match(method, request.path)
            if names is not None:
                asked = Asked(self._broker, self._orders, names, request.body)
                try:
                    return _json(200, await self._carried_out(route, asked))
                except (NotNow, StartFailed) as error:
                    return _json(409, {"error": str(error)})
                except LookupError as error:
                    return _json(404, {"error": str(error.args[0])})
                except ValueError as error:  # a wrong body is one, too
                    return _json(400, {"error": str(error)})
        return _json(404, {"error": f"{method} {request.path} is not known: GET /openapi.json lists what is"})

    async def _carried_out(self, route: Route, asked: Asked) -> Any:
        """Return the answer of a route. Requests take turns, so that none meets a broker that starts or ends."""
        async with self._turn:
            return await asyncio.to_thread(route.answer, asked)


def _json(status: int, content: Any) -> HttpAnswer:
    return HttpAnswer(status, JSON, msgspec.json.encode(content) + b"\n")
