"""Checks the Host header, against a foreign page whose name is made to lead to this machine (DNS rebinding)."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.config.exposure import is_loopback


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
