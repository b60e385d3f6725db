"""DescribeClientQuotas, AlterClientQuotas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tests.compat.differential.peer import Peer
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.support.wire import Plain

EXACT, DEFAULT, ANY = 0, 1, 2
Parts = Sequence[tuple[str, str | None]]


def _entry(parts: Parts, *ops: tuple[str, float | None]) -> dict[str, Any]:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in parts],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in ops],
    }


def _alter(peer: Peer, *entries: dict[str, Any], version: int = 1, validate_only: bool = False) -> Plain:
    return peer.call("alter_client_quotas", version, entries=list(entries), validate_only=validate_only)


def _filters(filters: Sequence[tuple[str, int, str | None]]) -> list[dict[str, Any]]:
    return [{"entity_type": kind, "match_type": how, "match": match} for kind, how, match in filters]


def _describe(
    peer: Peer, *filters: tuple[str, int, str | None], version: int = 1, strict: bool = True
) -> Plain:
    return peer.call("describe_client_quotas", version, components=_filters(filters), strict=strict)


def _settled(peer: Peer, user: str, count: int, *, strict: bool = True, version: int = 1) -> None:
    """Wait until a user has quotas of so many entities; brokers learn of a change after its answer."""
    peer.eventually(
        "describe_client_quotas",
        version,
        lambda answer: answer["entries"] is not None and len(answer["entries"]) == count,
        components=_filters([("user", EXACT, user)]),
        strict=strict,
    )


@scenario_for_each(range(2))
def set_and_remove(peer: Peer, version: int) -> None:
    user = peer.name("ann")
    _alter(
        peer,
        _entry([("user", user)], ("producer_byte_rate", 1024.0), ("request_percentage", 12.5)),
        version=version,
    )
    _settled(peer, user, 1, version=version)
    _alter(
        peer,
        _entry([("user", user)], ("producer_byte_rate", None), ("request_percentage", None)),
        version=version,
    )
    _settled(peer, user, 0, version=version)


@scenario
def pairs_and_filters(peer: Peer) -> None:
    user, client = peer.name("ann"), peer.name("app")
    _alter(peer, _entry([("user", user)], ("consumer_byte_rate", 1.0)))
    _alter(peer, _entry([("user", user), ("client-id", client)], ("consumer_byte_rate", 2.0)))
    _alter(peer, _entry([("user", user), ("client-id", None)], ("controller_mutation_rate", 0.5)))
    _settled(peer, user, 3, strict=False)
    _settled(peer, user, 1, strict=True)
    _describe(peer, ("user", EXACT, user), ("client-id", EXACT, client))
    _describe(peer, ("user", EXACT, user), ("client-id", DEFAULT, None))
    _describe(peer, ("user", EXACT, user), ("client-id", ANY, None))
    _describe(peer, ("client-id", EXACT, client))
    _describe(peer, ("client-id", EXACT, client), strict=False)
    _describe(peer, ("user", EXACT, peer.name("nobody")))
    _describe(peer, ("ip", EXACT, "192.0.2.77"))
    _describe(peer, strict=True)


Entity = tuple[tuple[str, str | None], ...]


def _listed(answer: Plain) -> dict[Entity, list[str]]:
    """Return the keys of each entity in a description, both in its order."""
    return {
        tuple((part["entity_type"], part["entity_name"]) for part in entry["entity"]): [
            value["key"] for value in entry["values"]
        ]
        for entry in answer["entries"]
    }


class _Alone:
    """Changes quotas where nobody else has any, and notes in which order all are described."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._expected: dict[Entity, set[str]] = {}
        for entity, keys in self._all().items():
            peer.wire.call(
                "alter_client_quotas",
                1,
                entries=[_entry(entity, *((key, None) for key in keys))],
                validate_only=False,
            )
        self._settle()

    def change(self, changes: dict[Entity, dict[str, float | None]]) -> None:
        """Change quotas in one request, and note the order of the description once it has all of them."""
        _alter(self._peer, *(_entry(entity, *values.items()) for entity, values in changes.items()))
        for entity, values in changes.items():
            has = self._expected.setdefault(entity, set())
            has.update(values)
            has.difference_update(key for key, value in values.items() if value is None)
            if not has:
                del self._expected[entity]
        self._peer.note("described", order=[(list(entity), keys) for entity, keys in self._settle().items()])

    def _all(self) -> dict[Entity, list[str]]:
        return _listed(self._peer.wire.call("describe_client_quotas", 1, components=[], strict=False).fields)

    def _settle(self) -> dict[Entity, list[str]]:
        found: dict[Entity, list[str]] = {}

        def is_applied(answer: Plain) -> bool:
            found.clear()
            found.update(_listed(answer))
            return {entity: set(keys) for entity, keys in found.items()} == self._expected

        asked = {"components": [], "strict": False}
        self._peer.until("describe_client_quotas", 1, is_applied, asked)
        return found


KEYS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
PEOPLE: tuple[Entity, ...] = tuple((("user", name),) for name in ("ann", "bob", "cat", "dan", "eve"))
PAIRS: tuple[Entity, ...] = tuple(
    (("client-id", client), ("user", user))
    for client in ("app", "job", None)
    for user in ("ann", "bob", "cat")
)
SAME_HASH: tuple[Entity, ...] = tuple((("client-id", name),) for name in ("AaAa", "BBBB", "AaBB", "BBAa"))
PLACES: tuple[Entity, ...] = tuple((("ip", f"192.0.2.{number}"),) for number in range(5))


def _rates(entity: Entity, *keys: str) -> dict[str, float | None]:
    return dict.fromkeys(("connection_creation_rate",) if entity in PLACES else keys or KEYS[:1], 5.0)


@scenario
def order_of_entities(peer: Peer) -> None:
    """Set quotas of several entities in a request, then of one after the other, and remove some."""
    alone = _Alone(peer)
    for entities in (PEOPLE[:3], SAME_HASH, PEOPLE[3:], PLACES, PAIRS):
        alone.change({entity: _rates(entity) for entity in entities})
    for entity in (PEOPLE[0], SAME_HASH[1], PAIRS[4]):
        alone.change({entity: dict.fromkeys(_rates(entity))})
        alone.change({entity: _rates(entity)})


@scenario_for_each({"13, one key": (13, 1), "13, two keys": (13, 2), "30, one key": (30, 1)})
def order_of_a_request(peer: Peer, sizes: tuple[int, int]) -> None:
    """Set quotas of as many entities in one request as need another table; of the last one, several."""
    count, keys = sizes
    entities = [(("client-id", f"client {number % 7}"), ("user", f"{number}")) for number in range(count)]
    changes: dict[Entity, dict[str, float | None]] = {entity: _rates(entity) for entity in entities}
    changes[entities[-1]] = _rates(entities[-1], *KEYS[:keys])
    _Alone(peer).change(changes)


@scenario
def order_of_keys(peer: Peer) -> None:
    """Set the quotas of one user in one request, in another order, and one after the other."""
    alone = _Alone(peer)
    ann, bob, cat = PEOPLE[:3]
    alone.change({ann: _rates(ann, *KEYS)})
    alone.change({bob: _rates(bob, *KEYS[2::-1])})
    for key in (KEYS[0], KEYS[2], KEYS[1], KEYS[3]):
        alone.change({cat: _rates(cat, key)})
    for key in (KEYS[3], KEYS[1], KEYS[0]):
        alone.change({ann: {key: None}})


FILTERS: dict[str, list[tuple[str, int, str | None]]] = {
    "exact null": [("user", EXACT, None)],
    "default named": [("user", DEFAULT, "x")],
    "any named": [("user", ANY, "x")],
    "unknown match": [("user", 9, None)],
    "twice": [("user", ANY, None), ("user", DEFAULT, None)],
    "empty type": [("", ANY, None)],
    "unknown type": [("group", ANY, None)],
    "ip and user": [("ip", ANY, None), ("user", ANY, None)],
    "ip and client": [("client-id", EXACT, "x"), ("ip", DEFAULT, None)],
}


@scenario_for_each(FILTERS)
def describe_badly(peer: Peer, filters: list[tuple[str, int, str | None]]) -> None:
    _describe(peer, *filters)


REFUSED: dict[str, tuple[Parts, str, float]] = {
    "unknown key": ([("user", "x")], "no_such_rate", 1.0),
    "key of addresses": ([("user", "x")], "connection_creation_rate", 1.0),
    "key of clients": ([("ip", "192.0.2.1")], "producer_byte_rate", 1.0),
    "zero": ([("client-id", "x")], "producer_byte_rate", 0.0),
    "negative": ([("client-id", "x")], "consumer_byte_rate", -5.0),
    "negative percentage": ([("user", "x")], "request_percentage", -5.0),
    "zero mutations": ([("user", "x")], "controller_mutation_rate", 0.0),
    "fraction of bytes": ([("user", "x")], "producer_byte_rate", 1.5),
    "fraction of connections": ([("ip", "192.0.2.1")], "connection_creation_rate", 1.5),
    "more bytes than a long": ([("user", "x")], "producer_byte_rate", 1e30),
    "more connections than an int": ([("ip", "192.0.2.1")], "connection_creation_rate", 2.0**31),
    "empty name": ([("user", "")], "producer_byte_rate", 1.0),
    "empty type": ([("", "x")], "producer_byte_rate", 1.0),
    "unknown type": ([("group", "x")], "producer_byte_rate", 1.0),
    "nobody": ([], "producer_byte_rate", 1.0),
    "user and ip": ([("user", "x"), ("ip", "192.0.2.1")], "producer_byte_rate", 1.0),
    "no address": ([("ip", "no address")], "connection_creation_rate", 1.0),
}


@scenario_for_each(REFUSED)
def alter_badly(peer: Peer, change: tuple[Parts, str, float]) -> None:
    """Refuse one entry; the entry beside it goes through."""
    parts, key, value = change
    user = peer.name("ann")
    _alter(peer, _entry(parts, (key, value)))
    _alter(peer, _entry(parts, (key, value)), _entry([("user", user)], ("producer_byte_rate", 9.0)))
    _settled(peer, user, 1)


@scenario_for_each({"infinity": math.inf, "not a number": math.nan, "tiny": 1e-9})
def strange_numbers(peer: Peer, value: float) -> None:
    user = peer.name("ann")
    for key in ("request_percentage", "controller_mutation_rate", "producer_byte_rate", "consumer_byte_rate"):
        _alter(peer, _entry([("user", user)], (key, value)), validate_only=True)


@scenario
def one_bad_key_beside_a_good_one(peer: Peer) -> None:
    user = peer.name("ann")
    _alter(peer, _entry([("user", user)], ("producer_byte_rate", 9.0), ("no_such_rate", 1.0)))
    _alter(peer, _entry([("user", user)], ("no_such_rate", 1.0), ("consumer_byte_rate", 9.0)))
    _describe(peer, ("user", EXACT, user))


@scenario
def named_twice(peer: Peer) -> None:
    user, other = peer.name("ann"), peer.name("bob")
    _alter(peer, _entry([("user", user)], ("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)))
    _alter(
        peer,
        _entry([("user", other)], ("producer_byte_rate", 1.0)),
        _entry([("user", other)], ("producer_byte_rate", 2.0)),
    )
    _settled(peer, other, 1)
    _alter(peer, _entry([("user", user), ("user", other)], ("consumer_byte_rate", 3.0)))
    peer.eventually(
        "describe_client_quotas",
        1,
        lambda answer: bool(answer["entries"]) and len(answer["entries"][0]["values"]) == 2,
        components=_filters([("user", EXACT, other)]),
        strict=True,
    )
    _describe(peer, ("user", EXACT, user))


@scenario
def nothing_to_do(peer: Peer) -> None:
    user = peer.name("ann")
    _alter(peer)
    _alter(peer, _entry([("user", user)]))
    _alter(peer, _entry([("user", user)], ("producer_byte_rate", None)))
    _alter(peer, _entry([("user", user)], ("no_such_rate", None)))
    _alter(peer, _entry([("user", user)], ("producer_byte_rate", 5.0)), validate_only=True)
    _describe(peer, ("user", EXACT, user))


@scenario
def addresses(peer: Peer) -> None:
    for address in ("192.0.2.91", "2001:db8::91"):
        _alter(peer, _entry([("ip", address)], ("connection_creation_rate", 1000.0)))
        peer.eventually(
            "describe_client_quotas",
            1,
            lambda answer: bool(answer["entries"]),
            components=_filters([("ip", EXACT, address)]),
            strict=True,
        )
        _alter(peer, _entry([("ip", address)], ("connection_creation_rate", None)))
