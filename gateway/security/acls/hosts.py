"""The texts by which entries name the address of a client."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from gateway.security.acls.entry import WILDCARD


@lru_cache(maxsize=1024)
def host_texts(host: str) -> tuple[str, ...]:
    """Return the hosts of the entries that apply to a client at this address.

    Kafka writes an IPv6 address in full, such as 0:0:0:0:0:0:0:1, and entries of Kafka have that text.
    """
    bare, percent, scope = host.partition("%")
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        return tuple(dict.fromkeys((WILDCARD, host)))
    if isinstance(address, ipaddress.IPv4Address):
        return (WILDCARD, host)
    mapped = address.ipv4_mapped
    if mapped is not None:
        return (WILDCARD, host, str(mapped))
    in_full = ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":")) + percent + scope
    return tuple(dict.fromkeys((WILDCARD, host, in_full)))
