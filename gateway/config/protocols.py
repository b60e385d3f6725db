"""The security protocol of each listener, by its name: `listener.security.protocol.map`."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping

from seqgate.gateway.config.setting import SettingValue


class SecurityProtocol(enum.Enum):
    """The protocol under the Kafka protocol on the connections of a listener. Source: Kafka's
    SecurityProtocol.
    """

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self in {SecurityProtocol.SSL, SecurityProtocol.SASL_SSL}

    @property
    def has_logins(self) -> bool:
        """Whether clients log in."""
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
    """Return the protocol that the listener of this name speaks.

    Raises:
        ValueError: the map does not have the name; the message is the reason.
    """
    found = protocols.get(listener_name)
    if found is not None:
        return found
    if _NUMBERED_PLAINTEXT.fullmatch(listener_name):
        return SecurityProtocol.PLAINTEXT
    raise ValueError(
        f"listener {listener_name} has no security protocol; add {listener_name}:SASL_SSL or another of "
        f"{', '.join(SecurityProtocol.__members__)} to listener.security.protocol.map"
    )


def protocol_map_complaint(value: SettingValue) -> str | None:
    """Return why the setting of protocols refuses the value; None when the value is allowed."""
    try:
        parse_protocol_map(str(value))
    except ValueError as error:
        return str(error)
    return None
