"""Limits on the connections of one address, written `ADDRESS:COUNT`."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from gateway.config.setting import INT_MAX, SettingValue


@lru_cache(maxsize=4)
def parse_overrides(text: str) -> dict[str, int]:
    """Return the number of connections that each address may have.

    Raises:
        ValueError: an item is malformed; the message is the reason.
    """
    limits: dict[str, int] = {}
    for item in text.split(",") if text else ():
        host, _, count = item.strip().rpartition(":")
        try:
            address = ipaddress.ip_address(host.strip("[]"))
        except ValueError:
            raise ValueError(f"{item.strip()!r} must have the form ADDRESS:COUNT") from None
        if not (count.isascii() and count.isdecimal() and len(count) < 12 and int(count) <= INT_MAX):
            raise ValueError(f"the count of {item.strip()!r} must be a number from 0 to {INT_MAX}")
        limits[str(address)] = int(count)
    return limits


def overrides_complaint(value: SettingValue) -> str | None:
    """Return why `max.connections.per.ip.overrides` refuses the value; None when the value is allowed."""
    try:
        parse_overrides(str(value))
    except ValueError as error:
        return str(error)
    return None
