"""Refuses to show the cluster to everybody: a console beyond the loopback needs logins."""

from __future__ import annotations

from collections.abc import Iterable

from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.config.listeners import is_loopback
from seqgate.gateway.console.asking.connections import WayIn
from seqgate.gateway.console.options import ConsoleOptions

ALLOW: str = "--insecure"


def exposure_complaint(options: ConsoleOptions, way_in: WayIn) -> str | None:
    """Return why a console with these options must not start, and what to do; None when it may."""
    host, port = options.listen
    if options.is_insecure or is_loopback(host):
        return None
    try:
        if way_in.mechanisms():
            return None
        reason = "the listener at --bootstrap has no logins"
    except ControlError as error:
        reason = f"the console can't find out whether people must log in ({error})"
    return (
        f"a console on {host or 'every interface'}:{port} would let everybody who reaches it read and change "
        f"everything: {reason}. Listen on 127.0.0.1, use a listener with logins (docs/security.md), or give "
        f"{ALLOW} where only trusted people reach the address"
    )


# Checks the Host header, against a foreign page whose name is made to lead to this machine (DNS rebinding).


class Hosts:
    """The host names under which browsers may reach the console."""

    def __init__(self, listen_host: str, public_names: Iterable[str]) -> None:
        """Accept the given names; beyond the loopback without names, accept every name."""
        self._names = {name.lower() for name in public_names}
        self._loopback_only = is_loopback(listen_host)
        self._any = not self._loopback_only and not self._names

    def accepts(self, header: str) -> bool:
        """Return whether a Host header names the console."""
        host = _host(header)
        if self._any or host in self._names:
            return True
        return is_loopback(host)


def _host(header: str) -> str:
    """Return the host of `HOST:PORT`, in lower case, without the brackets of an IPv6 address."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()
