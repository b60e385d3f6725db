"""Parses the addresses of `--bootstrap`. Raises ValueError with a sentence."""

from __future__ import annotations

import re
from typing import Final

DEFAULT_ADDRESS: Final = "127.0.0.1:9092"
LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - replaced by LOOPBACK, never bound
"""The address of this machine at which a listener on every interface is reached."""
_ADDRESS: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:\[\]/\s]+):(?P<port>\d+)", re.ASCII)
_HIGHEST_PORT: Final = 65_535


def parse_addresses(text: str) -> tuple[tuple[str, int], ...]:
    """Return host and port of each address in `HOST:PORT,HOST:PORT`; an IPv6 host stands in brackets."""
    return tuple(_parse(part.strip()) for part in text.split(","))


def _parse(text: str) -> tuple[str, int]:
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise ValueError(_complaint(text))
    port = int(match["port"])
    if not 0 < port <= _HIGHEST_PORT:
        raise ValueError(f"port {port} of {text} is not between 1 and {_HIGHEST_PORT}")
    return match["host"].strip("[]"), port


def _complaint(text: str) -> str:
    if "://" in text:
        return f"{text!r} must be HOST:PORT, without {text.partition('://')[0]}://"
    if text.count(":") > 1 and not text.startswith("["):
        return f"{text!r}: an IPv6 address stands in brackets, such as [::1]:9092"
    if text.isascii() and text.isdecimal():
        return f"{text!r}: the host is missing; did you mean 127.0.0.1:{text}?"
    if ":" not in text.rpartition("]")[2]:
        return f"{text!r}: a port is missing; write HOST:PORT, such as {DEFAULT_ADDRESS}"
    return f"{text!r} must be HOST:PORT, such as {DEFAULT_ADDRESS}"


def shown_address(host: str, port: int) -> str:
    """Return `HOST:PORT`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
