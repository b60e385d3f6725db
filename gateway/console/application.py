"""Composes the console's web application."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from seqgate.gateway.admin.remote.addresses import shown_address
from seqgate.gateway.admin.request import CONSOLE_SOCKET, ControlError
from seqgate.gateway.config.listeners import is_loopback
from seqgate.gateway.console.asking.connections import ClusterLogin
from seqgate.gateway.console.console import Console, ConsoleOptions
from seqgate.gateway.console.pages import PAGES
from seqgate.gateway.console.web.desk import Desk
from seqgate.gateway.console.web.login import Guard, Hosts, login_routes
from seqgate.gateway.console.web.visiting import STATIC, Renderer, Work, stranger

_TITLES: Final = {404: "There is no such page", 405: "This address takes no such request"}


def application(console: Console, on_start: Callable[[], None] = lambda: None) -> ASGIApp:
    """Return the web application of a console; `on_start` is called when it runs."""
    work = Work()
    desk = Desk(console, Renderer(PAGES), work)

    @asynccontextmanager
    async def running(_: Starlette) -> AsyncIterator[None]:
        console.sampler.start()
        on_start()
        yield
        work.close()
        console.close()

    async def no_page(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        title = _TITLES.get(error.status_code, "This did not work")
        sentence = "Check the address, or choose a page from the navigation."
        if error.status_code not in _TITLES:
            sentence = error.detail
        visit = stranger(console, request)
        return desk.failed(request, visit, sentence, status=error.status_code, title=title)

    async def mistake(request: Request, _: Exception) -> Response:
        sentence = "The console has a mistake in its program. Its log has the details."
        return desk.failed(request, stranger(console, request), sentence, status=500)

    pages = Starlette(
        routes=[*login_routes(desk), *desk.routes(PAGES), Mount("/static", StaticFiles(directory=STATIC))],
        exception_handlers={HTTPException: no_page, Exception: mistake},
        lifespan=running,
    )
    return Guard(pages, Hosts(console.options.listen[0], console.options.public_names))


# Runs the console until Ctrl-C or SIGTERM.

_BACKLOG = 128
_CONNECTIONS = 200
"""Connections of browsers at a time; further ones get status 503."""
_END_S = 3


def run(options: ConsoleOptions) -> None:
    """Run the console. Raises ControlError when it must not, or can't, start."""
    try:
        console = Console(options)
    except ValueError as error:
        raise ControlError(f"--metrics: {error}") from None
    complaint = exposure_complaint(options, console.cluster_login)
    if complaint is not None:
        raise ControlError(complaint)
    listening = _listening(options)
    scheme = "https" if options.certificate else "http"
    shown = shown_address(*listening.getsockname()[:2])

    def ready() -> None:
        sys.stdout.write(f"seqgate console ready: {scheme}://{shown}/\n")
        sys.stdout.flush()

    server = uvicorn.Server(
        uvicorn.Config(
            application(console, ready),
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_CONNECTIONS,
            timeout_graceful_shutdown=_END_S,
            ssl_certfile=options.certificate,
            ssl_keyfile=options.certificate_key,
        )
    )
    server.run(sockets=[listening])


def _listening(options: ConsoleOptions) -> socket.socket:
    """Return the socket that listens: that of the gateway beside which this console runs, if there is one.
    Raises ControlError.
    """
    inherited = os.environ.pop(CONSOLE_SOCKET, None)
    if inherited is not None:
        return socket.socket(fileno=int(inherited))
    host, port = options.listen
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=_BACKLOG
        )
    except OSError as error:
        raise ControlError(
            f"--listen {shown_address(host, port)}: {error.strerror or error}; choose another address"
        ) from None


def exposure_complaint(options: ConsoleOptions, cluster_login: ClusterLogin) -> str | None:
    """Return why a console with these options must not start, and what to do; None when it may."""
    host, port = options.listen
    if options.is_insecure or is_loopback(host):
        return None
    try:
        if cluster_login.mechanisms():
            return None
        reason = "the listener at --bootstrap has no logins"
    except ControlError as error:
        reason = f"the console can't find out whether people must log in ({error})"
    return (
        f"a console on {host or 'every interface'}:{port} would let everybody who reaches it read and change "
        f"everything: {reason}. Listen on 127.0.0.1, use a listener with logins (`seqgate help security`), "
        f"or give --insecure where only trusted people reach the address"
    )
