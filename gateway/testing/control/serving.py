"""A broker that programs in other processes control: what `seqgate serve --test-control` runs. It has a
thread of its own, as that of `Broker`, so the test control answers while it is stopped or reset.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from seqgate.gateway.admin.request import in_words
from seqgate.gateway.backends.backend import StartFailed
from seqgate.gateway.config import Config
from seqgate.gateway.config.listeners import is_loopback, parse_listener
from seqgate.gateway.console_process import check_installed
from seqgate.gateway.http_server import JSON, HttpAnswer, HttpRequest, HttpServer
from seqgate.gateway.running import (
    Announce,
    announcement_of,
    check_listener,
    console_of,
    prepare_process,
    warn_of_readers,
)
from seqgate.gateway.server.server import bound_sockets
from seqgate.gateway.stop_signals import signals_taken
from seqgate.gateway.testing.broker import BrokerThread, NotNow
from seqgate.gateway.testing.control.routes import ROUTES, Asked, Orders, Route, description

logger = logging.getLogger(__name__)

_LOOK_S: Final = 1.0
"""The time between two looks at a process, where the system tells nobody that it has ended."""


def serve_under_test(
    config: Config, address: str, announce: Announce, *, console: bool = False, exit_with: int | None = None
) -> None:
    """Run a broker and its test control at HOST:PORT until SIGINT, SIGTERM or the end of `exit_with`.

    Where no setting names a data directory, the data is in a temporary one. Raises StartFailed.
    """
    prepare_process(config)
    for listener in config.listeners:
        check_listener(listener)
    if console:
        check_installed()
    broker = BrokerThread(config, Path(config.str("log.dirs")) if config.is_set("log.dirs") else None)
    try:
        _ = broker.directory
    except OSError as error:
        raise StartFailed(f"can't make a temporary data directory: {in_words(error)}") from error
    try:
        asyncio.run(_serve(broker, address, announce, console=console, exit_with=exit_with))
    finally:
        broker.close()


async def _serve(
    broker: BrokerThread, address: str, announce: Announce, *, console: bool, exit_with: int | None
) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    with signals_taken(lambda: loop.call_soon_threadsafe(stopping.set)), _ended(exit_with, stopping.set):
        await asyncio.to_thread(broker.start)
        try:
            control = await _begin_control(broker, address)
            gateway = broker.gateway
            warn_of_readers(gateway.config.str("log.dirs"))
            gc.freeze()
            gc.enable()
            beside = await console_of(gateway) if console else None
            announce(announcement_of(gateway, beside))
            if beside is not None:
                await beside.start()
            await stopping.wait()
            logger.info("stopping")
            if beside is not None:
                await beside.stop()
            await control.stop()
        finally:
            await asyncio.to_thread(broker.stop)


async def _begin_control(broker: BrokerThread, address: str) -> ControlListener:
    control = ControlListener(broker)
    try:
        shown = await control.start(address)
    except OSError as error:
        raise StartFailed(f"can't listen for test control on {address}: {in_words(error)}") from error
    print(f"test control on http://{shown}", flush=True)
    return control


@contextlib.contextmanager
def _ended(process: int | None, stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` in the event loop when the process with this id ends. Raises StartFailed without it."""
    if process is None:
        yield
        return
    try:
        handle = os.pidfd_open(process)
    except AttributeError:  # macOS, or a Python for old C libraries
        with _looked_at(process, stop):
            yield
        return
    except OSError as error:
        raise StartFailed(f"--exit-with {process}: {in_words(error)}") from error
    loop = asyncio.get_running_loop()

    def stop_once() -> None:
        loop.remove_reader(handle)
        stop()

    loop.add_reader(handle, stop_once)
    try:
        yield
    finally:
        loop.remove_reader(handle)
        os.close(handle)


@contextlib.contextmanager
def _looked_at(process: int, stop: Callable[[], None]) -> Iterator[None]:
    """As `_ended`, by a look now and then. A process that has ended and was not waited for is still there."""
    loop = asyncio.get_running_loop()
    looking: asyncio.TimerHandle

    def look() -> None:
        nonlocal looking
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            stop()
        else:
            looking = loop.call_later(_LOOK_S, look)

    try:
        os.kill(process, 0)
    except OSError as error:
        raise StartFailed(f"--exit-with {process}: {in_words(error)}") from error
    looking = loop.call_later(_LOOK_S, look)
    try:
        yield
    finally:
        looking.cancel()


# Listens for programs that control a gateway under test.

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
        return (
            "the test control listens on the loopback interface only, such as 127.0.0.1:9090, "
            f"not on {address}"
        )
    return None


class ControlListener:
    """Answers requests about one broker, in the event loop of `start`."""

    def __init__(self, broker: BrokerThread) -> None:
        self._broker = broker
        self._orders = Orders(broker.faults)
        self._turn = asyncio.Lock()
        methods = sorted({"HEAD", *(route.method for route in ROUTES)})
        self._server = HttpServer(self._answer, methods=methods, max_body_bytes=MAX_BODY_BYTES)

    async def start(self, address: str) -> str:
        """Listen; return HOST:PORT. Raises OSError."""
        port = await self._server.start(bound_sockets(parse_listener(address)))
        return f"{address.rpartition(':')[0]}:{port}"

    async def stop(self) -> None:
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
        """Return a route's answer. Requests take turns, so that none meets a broker that starts or ends."""
        async with self._turn:
            return await asyncio.to_thread(route.answer, asked)


def _json(status: int, content: Any) -> HttpAnswer:
    return HttpAnswer(status, JSON, msgspec.json.encode(content) + b"\n")
