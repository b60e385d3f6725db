"""Runs the console until Ctrl-C or SIGTERM."""

from __future__ import annotations

import socket
import sys

import uvicorn

from gateway.admin.remote.addresses import shown_address
from gateway.admin.request import ControlError
from gateway.console.application import application
from gateway.console.console import Console
from gateway.console.options import ConsoleOptions
from gateway.console.security.exposure import exposure_complaint

_BACKLOG = 128
_CONNECTIONS = 200
"""Connections of browsers at a time; further ones get status 503."""
_END_S = 3


def run(options: ConsoleOptions) -> None:
    """Run the console. Raises ControlError when it must not, or can't, start."""
    try:
        console = Console.of(options)
    except ValueError as error:
        raise ControlError(f"--metrics: {error}") from None
    complaint = exposure_complaint(options, console.way_in)
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
    """Return the socket that listens. Raises ControlError."""
    host, port = options.listen
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=_BACKLOG
        )
    except OSError as error:
        raise ControlError(
            f"--listen {shown_address(host, port)}: {error.strerror or error}; choose another address"
        ) from None
