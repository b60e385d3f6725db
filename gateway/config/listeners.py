"""Listeners: their addresses, written `NAME://HOST:PORT`, and the security protocol that each speaks."""

from __future__ import annotations

import enum
import ipaddress
import re
from collections.abc import Iterable, Mapping

import msgspec

from seqgate.gateway.config.setting import SettingValue

_LISTENER = re.compile(r"(?:(?P<name>[A-Za-z0-9_-]+)://)?(?P<host>\[[^\]]*\]|[^:\[\]/]*):(?P<port>\d{1,9})")
HIGHEST_PORT = 65_535


class Listener(msgspec.Struct, frozen=True):
    """The address of one listener. The host has no brackets; an empty host means all interfaces."""

    name: str
    host: str
    port: int

    @property
    def bound_host(self) -> str | None:
        """The host to bind; None for all interfaces. As in Kafka, `::` stands for those of IPv4 too."""
        return None if self.host in {"", "::"} else self.host


def parse_listener(text: str) -> Listener:
    """Return the listener of a text, named PLAINTEXT if unnamed. Raises ValueError with the reason."""
    match = _LISTENER.fullmatch(text.strip())
    if match is None:
        raise ValueError(_complaint(text.strip()))
    if int(match["port"]) > HIGHEST_PORT:
        raise ValueError(f"port {match['port']} is not between 0 and {HIGHEST_PORT}")
    name, host = (match["name"] or "PLAINTEXT").upper(), match["host"].strip("[]")
    if not _is_a_host(host):
        raise ValueError(f"{host!r} is not the name of a host, whose parts have 1 to 63 letters each")
    return Listener(name, host, int(match["port"]))


def _is_a_host(name: str) -> bool:
    """Return whether DNS can be asked for the name."""
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return True


def _complaint(text: str) -> str:
    address = text.rpartition("://")[2]
    if address and not address.startswith("[") and address.count(":") > 1:
        return f"{text!r}: an IPv6 address stands in brackets, such as [::1]:9092"
    if address.isascii() and address.isdecimal():
        return f"{text!r}: the address is missing; did you mean 127.0.0.1:{address}?"
    if address and ":" not in address.rpartition("]")[2]:
        return f"{text!r}: a port is missing, such as {address}:9092"
    return f"{text!r} must have the form HOST:PORT or NAME://HOST:PORT"


def parse_listeners(texts: Iterable[str]) -> tuple[Listener, ...]:
    """Return the listeners of a setting. Raises ValueError: malformed, a name twice, or no listener."""
    listeners = tuple(parse_listener(text) for text in texts)
    if not listeners:
        raise ValueError("the list is empty, and the gateway needs at least one listener")
    names = [listener.name for listener in listeners]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise ValueError(f"each listener must have a name of its own, and {doubled[0]} occurs twice")
    return listeners


def address_complaint(value: SettingValue) -> str | None:
    """Return why a setting of one address without a name refuses the value; None when it is allowed."""
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


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address. Names other than localhost count as reachable."""
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


# The security protocol of each listener, by its name: `listener.security.protocol.map`.


class SecurityProtocol(enum.Enum):
    """The protocol under the Kafka protocol on a listener's connections. Source: Kafka's SecurityProtocol."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        return self in {SecurityProtocol.SSL, SecurityProtocol.SASL_SSL}

    @property
    def has_logins(self) -> bool:
        return self in {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL}


DEFAULT_MAP = ",".join(f"{name}:{name}" for name in SecurityProtocol.__members__)
_NUMBERED_PLAINTEXT = re.compile(r"PLAINTEXT\d+")
"""The names that `seqgate serve --listen` gives to its second and further listeners."""


def parse_protocol_map(text: str) -> dict[str, SecurityProtocol]:
    """Return the protocol of each listener name of the map, `NAME:PROTOCOL` separated by commas.

    Raises:
        ValueError: an item is malformed, names an unknown protocol, or a name occurs twice; the message is
        the reason.
    """
    protocols: dict[str, SecurityProtocol] = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        name, colon, protocol = (part.strip().upper() for part in item.partition(":"))
        if not (name and colon and protocol):
            raise ValueError(f"{item!r} must have the form NAME:PROTOCOL")
        if name in protocols:
            raise ValueError(f"the listener name {name} occurs twice")
        if protocol not in SecurityProtocol.__members__:
            allowed = ", ".join(SecurityProtocol.__members__)
            raise ValueError(f"{protocol} in {item!r} is no security protocol; choose from {allowed}")
        protocols[name] = SecurityProtocol[protocol]
    return protocols


def protocol_of(listener_name: str, protocols: Mapping[str, SecurityProtocol]) -> SecurityProtocol:
    """Return the protocol of the listener of this name. Raises ValueError for a name that the map lacks."""
    found = protocols.get(listener_name)
    if found is not None:
        return found
    if _NUMBERED_PLAINTEXT.fullmatch(listener_name):
        return SecurityProtocol.PLAINTEXT
    raise ValueError(
        f"listener {listener_name} has no security protocol; add {listener_name}:SASL_SSL or another of "
        f"{', '.join(SecurityProtocol.__members__)} to listener.security.protocol.map"
    )
