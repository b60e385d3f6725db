"""`seqgate console`: the web page for people."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from seqgate.gateway.admin.commands import command, flag, option, stop
from seqgate.gateway.admin.options import CommandConfig
from seqgate.gateway.admin.remote.addresses import DEFAULT_ADDRESS, parse_addresses, shown_address
from seqgate.gateway.admin.request import CONSOLE_SOCKET, ControlError
from seqgate.gateway.admin.which_cluster import bootstrap_of
from seqgate.gateway.config.listeners import is_loopback
from seqgate.gateway.config.packages import install

if TYPE_CHECKING:
    from seqgate.gateway.console.asking.connections import ClusterLogin
    from seqgate.gateway.console.console import ConsoleOptions


@command
def console(
    bootstrap: str | None = option(
        "--bootstrap",
        "HOST:PORT",
        "The cluster to show, Seqgate or Apache Kafka; several addresses are separated by commas. "
        f"[default: SEQGATE_BOOTSTRAP, or {DEFAULT_ADDRESS}]",
    ),
    metrics: list[str] | None = option(
        "--metrics",
        "URL",
        "The gateway's metrics listener (seqgate.metrics.listener), such as http://127.0.0.1:9644. "
        "Without it, pages such as Producer ids lack what brokers do not report. Of several the first is "
        "that of these pages, and all take the place of brokers that do not answer the console's questions.",
    ),
    listen: str = option(
        "--listen",
        "HOST:PORT",
        "The address to serve browsers on.",
        show_default=True,
        default="127.0.0.1:8080",
    ),
    command_config: CommandConfig = None,
    public_names: list[str] | None = option(
        "--public-name",
        "HOST",
        "A further host name under which browsers reach the console, such as that of a proxy; may "
        "be repeated.",
    ),
    certificate: Path | None = option(
        "--tls-certificate", "FILE", "Serve HTTPS with this certificate, in PEM.", exists=True, dir_okay=False
    ),
    key: Path | None = option(
        "--tls-key", "FILE", "The private key of --tls-certificate, in PEM.", exists=True, dir_okay=False
    ),
    history: Path | None = option(
        "--history",
        "FILE",
        "Keep a day of samples for the charts in this file, at most 32 MiB, for the next start of the "
        "console. Without it they are in memory only.",
        dir_okay=False,
    ),
    p99_limit_ms: int = option(
        "--p99-limit",
        "MS",
        "The produce time in milliseconds, at the 99th percentile, above which the Overview warns.",
        show_default=True,
        default=1_000,
        min=1,
    ),
    insecure: bool = flag(
        "--insecure", "Also listen beyond this machine where the cluster's listener has no logins."
    ),
) -> None:
    """Serve a web page that shows and changes a cluster, until Ctrl-C or SIGTERM.

    \b
    For example:
      seqgate console
      seqgate console --bootstrap gateway:9092 --metrics http://gateway:9644
    """  # noqa: D301 - \b keeps the lines of the list apart
    if (certificate is None) != (key is None):
        raise stop("give --tls-certificate and --tls-key together", code=2)
    addresses = _addresses(bootstrap_of(bootstrap, None, None) or DEFAULT_ADDRESS, "--bootstrap")
    (listening,) = _addresses(listen, "--listen", may_be_any_port=True)
    try:
        from seqgate.gateway.admin.remote.client_security import read_client_security  # noqa: PLC0415 - slow
        from seqgate.gateway.console.console import ConsoleOptions  # noqa: PLC0415 - slow to import

        _run(
            ConsoleOptions(
                bootstrap=addresses,
                listen=listening,
                security=read_client_security(command_config),
                metrics_urls=tuple(metrics or ()),
                public_names=frozenset(public_names or ()),
                is_insecure=insecure,
                certificate=None if certificate is None else str(certificate),
                certificate_key=None if key is None else str(key),
                history=history,
                p99_limit_ms=p99_limit_ms,
            )
        )
    except ModuleNotFoundError as error:
        raise stop(install(error.name, "the console", "console")) from None
    except ControlError as error:
        raise stop(str(error)) from None


def _addresses(text: str, option: str, *, may_be_any_port: bool = False) -> tuple[tuple[str, int], ...]:
    """Return the addresses of an option; a wrong one ends the command with a usage error."""
    host, colon, port = text.rpartition(":")
    if may_be_any_port and colon and port == "0":
        return ((host.strip("[]"), 0),)
    try:
        found = parse_addresses(text)
    except ValueError as error:
        raise stop(f"{option}: {error}", code=2) from None
    if may_be_any_port and len(found) != 1:
        raise stop(f"{option}: {text!r} must be one address", code=2)
    return found


# Runs the console until Ctrl-C or SIGTERM.

_BACKLOG: Final = 128
_CONNECTIONS: Final = 200
"""Connections of browsers at a time; further ones get status 503."""
_END_S: Final = 3


def _run(options: ConsoleOptions) -> None:
    """Run the console. Raises ControlError when it must not, or can't, start; ModuleNotFoundError."""
    import uvicorn  # noqa: PLC0415 - needs seqgate[console]

    from seqgate.gateway.console.application import TimedProtocol, application  # noqa: PLC0415 - an extra
    from seqgate.gateway.console.console import Console  # noqa: PLC0415 - slow to import

    try:
        console = Console(options)
    except ValueError as error:
        raise ControlError(f"--metrics: {error}") from None
    complaint = exposure_complaint(options, console.cluster_login)
    if complaint is not None:
        raise ControlError(complaint)
    _check_certificate(options)
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
            http=TimedProtocol,
            limit_concurrency=_CONNECTIONS,
            timeout_graceful_shutdown=_END_S,
            ssl_certfile=options.certificate,
            ssl_keyfile=options.certificate_key,
        )
    )
    server.run(sockets=[listening])


def _check_certificate(options: ConsoleOptions) -> None:
    """Check that the certificate and the key can be used together. Raises ControlError."""
    if not options.certificate:
        return
    import ssl  # noqa: PLC0415 - slow to import

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(options.certificate, options.certificate_key)
    except OSError as error:
        raise ControlError(
            f"--tls-certificate {options.certificate} and --tls-key {options.certificate_key} can't be used: "
            f"{error.strerror or error}"
        ) from None


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
