"""Listener addresses, written `NAME://HOST:PORT`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from seqgate.gateway.config.setting import SettingValue

_LISTENER = re.compile(r"(?:(?P<name>[A-Za-z0-9_-]+)://)?(?P<host>\[[^\]]*\]|[^:\[\]/]*):(?P<port>\d{1,9})")
HIGHEST_PORT = 65_535


@dataclass(frozen=True, slots=True)
class Listener:
    """The address of one listener. The host has no brackets; an empty host means all interfaces."""

    name: str
    host: str
    port: int


def parse_listener(text: str) -> Listener:
    """Return the listener that `text` describes; without a name its name is PLAINTEXT.

    Raises:
        ValueError: the text is malformed; the message is the reason.
    """
    match = _LISTENER.fullmatch(text.strip())
    if match is None:
        raise ValueError(_complaint(text.strip()))
    if int(match["port"]) > HIGHEST_PORT:
        raise ValueError(f"port {match['port']} is not between 0 and {HIGHEST_PORT}")
    name = (match["name"] or "PLAINTEXT").upper()
    return Listener(name, match["host"].strip("[]"), int(match["port"]))


def _complaint(text: str) -> str:
    address = text.rpartition("://")[2]
    if address and not address.startswith("[") and address.count(":") > 1:
        return f"{text!r}: an IPv6 address stands in brackets, such as [::1]:9092"
    if address and ":" not in address.rpartition("]")[2]:
        return f"{text!r}: a port is missing, such as {address}:9092"
    return f"{text!r} must have the form HOST:PORT or NAME://HOST:PORT"


def parse_listeners(texts: Iterable[str]) -> tuple[Listener, ...]:
    """Return the listeners of a setting.

    Raises:
        ValueError: a text is malformed, a name occurs twice, or there is no listener; the message is the
        reason.
    """
    listeners = tuple(parse_listener(text) for text in texts)
    if not listeners:
        raise ValueError("the list is empty, and the gateway needs at least one listener")
    names = [listener.name for listener in listeners]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise ValueError(f"each listener must have a name of its own, and {doubled[0]} occurs twice")
    return listeners


def address_complaint(value: SettingValue) -> str | None:
    """Return why a setting of one address without a name refuses the value; None when the value is allowed."""
    text = str(value)
    if "://" in text:
        return f"{text!r} must have the form HOST:PORT, without a name or scheme"
    return listener_complaint(text)


def listener_complaint(value: SettingValue) -> str | None:
    """Return why a setting of listeners refuses the value; None when the value is allowed."""
    try:
        parse_listeners(value if isinstance(value, tuple) else (str(value),))
    except ValueError as error:
        return str(error)
    return None
