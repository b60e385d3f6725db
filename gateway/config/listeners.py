"""Listener addresses: `NAME://HOST:PORT`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gateway.config.setting import SettingValue

_LISTENER = re.compile(r"(?:(?P<name>[A-Za-z0-9_-]+)://)?(?P<host>\[[^\]]*\]|[^:\[\]/]*):(?P<port>\d{1,5})")
_SECURE_PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True)
class Listener:
    """An address under a listener name; the host without brackets, empty for all interfaces."""

    name: str
    host: str
    port: int


def parse_listener(text: str) -> Listener:
    """The listener that a text names; a missing name means PLAINTEXT.

    Raises:
        ValueError: with the reason.
    """
    match = _LISTENER.fullmatch(text.strip())
    if match is None or int(match["port"]) > 65535:
        raise ValueError(f"{text!r} is not NAME://HOST:PORT")
    name = (match["name"] or "PLAINTEXT").upper()
    if name in _SECURE_PROTOCOLS:
        raise ValueError(
            f"listener {name} asks for encryption or authentication, every listener here speaks plaintext"
        )
    return Listener(name, match["host"].strip("[]"), int(match["port"]))


def parse_listeners(texts: Iterable[str]) -> tuple[Listener, ...]:
    """All listeners of a setting, each name once.

    Raises:
        ValueError: with the reason.
    """
    listeners = tuple(parse_listener(text) for text in texts)
    if not listeners:
        raise ValueError("at least one listener is needed")
    names = [listener.name for listener in listeners]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise ValueError(f"each listener must have a different name, {doubled[0]} is there twice")
    return listeners


def listener_complaint(value: SettingValue) -> str | None:
    """What is wrong with the value of a listeners setting, or None."""
    try:
        parse_listeners(value if isinstance(value, tuple) else (str(value),))
    except ValueError as error:
        return str(error)
    return None
