"""The names of topics, groups and brokers that a shell offers while somebody types a command. A shell waits
for the names, so a cluster has a second to answer; without an answer nothing is offered, and nothing is
printed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from seqgate.gateway.admin.remote.addresses import parse_addresses
from seqgate.gateway.admin.which_cluster import addresses_of_gateway, bootstrap_of

TIMEOUT_S: Final = 1.0
"""Time for the answer of one broker, and for the connection to it."""
_PRIVATE: Final = "_"
"""The first character of internal topics, which are offered only for a word that begins with it."""

Address = tuple[str, int]


def topic_names(ctx: Any, incomplete: str) -> list[str]:
    """Return the topics whose names begin with the text; internal ones only if the text begins with `_`."""
    return _offered(ctx, incomplete, "topic")


def group_names(ctx: Any, incomplete: str) -> list[str]:
    """Return the groups whose names begin with the typed text."""
    return _offered(ctx, incomplete, "group")


def configured_names(ctx: Any, incomplete: str) -> list[str]:
    """Return the topics, brokers or groups, by the kind that was typed before."""
    return _offered(ctx, incomplete, str(ctx.params.get("kind")))


def _offered(ctx: Any, incomplete: str, kind: str) -> list[str]:
    given = ctx.params
    try:
        named = given.get("config_file"), given.get("data_dir")
        bootstrap = bootstrap_of(given.get("bootstrap"), *reversed(named))
        addresses = parse_addresses(bootstrap) if bootstrap else addresses_of_gateway(*named, TIMEOUT_S)
        names = _names(kind, addresses, given.get("command_config"))
    except Exception:  # noqa: BLE001 - a shell shows neither errors nor tracebacks in place of names
        return []
    fitting = {name for name in names if name.startswith(incomplete) and _is_one_word(name)}
    return sorted(name for name in fitting if incomplete or not name.startswith(_PRIVATE))


def _is_one_word(name: str) -> bool:
    return bool(name) and all(letter.isalnum() or letter in "._-:@%+,/=" for letter in name)


def _names(kind: str, addresses: tuple[Address, ...], command_config: Path | None) -> list[str]:
    from seqgate.gateway.admin.remote.broker import FIND, BrokerAddress  # noqa: PLC0415 - slow to import
    from seqgate.gateway.admin.remote.client_security import read_client_security  # noqa: PLC0415 - slow

    security = read_client_security(command_config)
    return FIND[kind](BrokerAddress(*addresses[0], security), TIMEOUT_S)
