"""Subscriptions of client metrics, and the telemetry of clients: GetTelemetrySubscriptions and PushTelemetry
(KIP-714).

Kafka runs with a plugin that receives metrics, `tests/support/peer/TelemetryReceiver.java`.
"""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode
from typing import Any

from seqgate.log.format.compression import GZIP, LZ4, SNAPPY, ZSTD, compress
from tests.compat.differential.peer import Peer
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.gateway.telemetry.support import counter, gauge, payload
from tests.support.wire import Plain

CLIENT_METRICS = 16
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
METRICS = payload(gauge("depth", 3.0), counter("sent", 4.0))
LONGEST_TOLD = 300_000
"""The longest interval (ms) that Kafka tells a client."""

Values = dict[str, str | None]


def _alter(peer: Peer, name: str, values: Values, **more: Any) -> Plain:
    rows = [
        {"name": key, "config_operation": DELETE if value is None else SET, "value": value}
        for key, value in values.items()
    ]
    resource = {"resource_type": CLIENT_METRICS, "resource_name": name, "configs": rows}
    return peer.call("incremental_alter_configs", 1, resources=[resource], **more)


def _replace(peer: Peer, name: str, values: Values, **more: Any) -> Plain:
    rows = [{"name": key, "value": value} for key, value in values.items()]
    resource = {"resource_type": CLIENT_METRICS, "resource_name": name, "configs": rows}
    return peer.call("alter_configs", 2, resources=[resource], **more)


def _describe(
    peer: Peer, name: str, keys: list[str] | None = None, *, version: int = 4, **more: Any
) -> Plain:
    wanted = {"resource_type": CLIENT_METRICS, "resource_name": name, "configuration_keys": keys}
    return peer.call("describe_configs", version, resources=[wanted], **more)


def _settled(peer: Peer, name: str, expected: dict[str, str]) -> None:
    """Wait until the subscription shows these values, and record all its configs."""

    def shows(answer: Plain) -> bool:
        found = {config["name"]: config["value"] for config in answer["results"][0]["configs"]}
        return all(found.get(key) == value for key, value in expected.items())

    wanted = {"resource_type": CLIENT_METRICS, "resource_name": name, "configuration_keys": None}
    peer.eventually("describe_configs", 4, shows, resources=[wanted], include_synonyms=True)


# --- the configurations

VALUES: dict[str, tuple[str, list[str]]] = {
    "interval": (
        "interval.ms",
        ["99", "100", "3600000", "3600001", "0", "-1", "x", "", " 200 ", "1e4", "99999999999"],
    ),
    "metrics": (
        "metrics",
        ["*", "", " ", "a,b", "a, b", "a,a", "a,,b", ",", "a,*", "org.apache.kafka.", "ü", "x" * 300],
    ),
    "match": (
        "match",
        [
            *(
                "client_id=a",
                "client_id",
                "client_id=",
                "=a",
                "client_id=a=b",
                "client_id==a",
                "client_id=a=",
            ),
            *("client_id=a,client_id=b", "client_id=a,client_id=a", " client_id = a ", "client_id= ", " =a"),
            *("nope=a", "CLIENT_ID=a", "client_id=[", "client_id=(?=a)x", "client_id=a,", "client_id=a{1,2}"),
            *(
                "client_source_port=1..",
                "client_instance_id=x",
                "client_software_version=4.*",
                "client_id=(a|b)+",
            ),
            "client_source_address=127.*, client_software_name=b",
        ],
    ),
    "java": ("match", ["client_id=a*+", "client_id=(a)\\1", "client_id=\\p{IsLatin}"]),
}


@scenario_for_each(VALUES)
def values(peer: Peer, case: tuple[str, list[str]]) -> None:
    """Set legal and illegal values; `java` are expressions that only Java's regular expressions know."""
    key, texts = case
    for text in texts:
        _alter(peer, peer.name("s"), {key: text}, validate_only=True)
        _replace(peer, peer.name("s"), {key: text}, validate_only=True)


OPERATIONS: dict[str, list[tuple[str, int, str | None]]] = {
    "append": [("metrics", APPEND, "b")],
    "subtract": [("match", SUBTRACT, "b")],
    "append unknown": [("nope", APPEND, "b")],
    "set unknown": [("nope", SET, "1")],
    "delete unknown": [("nope", DELETE, None)],
    "delete what is not set": [("metrics", DELETE, None)],
    "null": [("metrics", SET, None)],
    "same name twice": [("metrics", SET, "a"), ("metrics", SET, "b")],
    "unknown and out of range": [("nope", SET, "1"), ("interval.ms", SET, "1")],
    "out of range and illegal": [("interval.ms", SET, "1"), ("match", SET, "x")],
    "nothing": [],
}


@scenario_for_each(OPERATIONS)
def operations(peer: Peer, operations: list[tuple[str, int, str | None]]) -> None:
    rows = [
        {"name": key, "config_operation": operation, "value": value} for key, operation, value in operations
    ]
    resource = {"resource_type": CLIENT_METRICS, "resource_name": peer.name("s"), "configs": rows}
    peer.call("incremental_alter_configs", 1, resources=[resource])
    _describe(peer, peer.name("s"))


@scenario
def names(peer: Peer) -> None:
    for name in ("", "a b", "ü", "x" * 300, "a/b", "*"):
        _alter(peer, name, {"interval.ms": "1000"}, validate_only=True)
        _replace(peer, name, {"interval.ms": "1000"}, validate_only=True)


@scenario_for_each(range(1, 5))
def describe(peer: Peer, version: int) -> None:
    """Describe a subscription that does not exist, and one that does."""
    name = peer.name("s")
    for keys in (None, [], ["metrics"], ["nope"]):
        _describe(peer, name, keys, version=version, include_synonyms=True)
    _describe(peer, name, version=version, include_documentation=True)
    _describe(peer, "", version=version)
    _alter(peer, name, {"interval.ms": " 200 ", "metrics": " a , b,a", "match": "client_id=nobody"})
    _settled(peer, name, {"interval.ms": "200"})
    _describe(peer, name, version=version, include_synonyms=True)
    _replace(peer, name, {"match": "client_id=nobody"})
    _settled(peer, name, {"interval.ms": "300000"})
    _alter(peer, name, {"match": None})
    _settled(peer, name, {"match": ""})


@scenario_for_each(range(2))
def list_resources(peer: Peer, version: int) -> None:
    """List subscriptions, of which one exists and then none."""
    types = {"resource_types": [CLIENT_METRICS]} if version else {}
    _alter(peer, peer.name("s"), {"match": "client_id=nobody"})
    _settled(peer, peer.name("s"), {"match": "client_id=nobody"})
    peer.call("list_config_resources", version, only_own=True, **types)
    _alter(peer, peer.name("s"), {"match": None})
    _settled(peer, peer.name("s"), {"match": ""})
    peer.call("list_config_resources", version, only_own=True, **types)


# --- the telemetry


def _instance_id(peer: Peer, name: str) -> str:
    """Return the id of a client that only this scenario knows."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, peer.name(name)))


def _text(instance_id: str) -> str:
    return urlsafe_b64encode(uuid.UUID(instance_id).bytes).decode().rstrip("=")


def _ask(peer: Peer, instance_id: str | None) -> Plain:
    return peer.call("get_telemetry_subscriptions", 0, client_instance_id=instance_id)


def _push(peer: Peer, instance_id: str | None, asked: Plain, metrics: bytes = METRICS, **more: Any) -> Plain:
    fields = {"subscription_id": asked["subscription_id"], "compression_type": 0, **more}
    return peer.call("push_telemetry", 0, client_instance_id=instance_id, metrics=metrics, **fields)


def _subscribe(peer: Peer, name: str, instances: list[str], values: Values) -> None:
    """Make a subscription that applies to these clients, and wait until it is told to one more client."""
    witness = _instance_id(peer, f"witness of {name}")
    chosen = "|".join(map(_text, [*instances, witness]))
    _alter(peer, peer.name(name), {"match": f"client_instance_id=({chosen})", **values})
    wanted = sorted((values.get("metrics") or "").split(","))

    def is_told(answer: Plain) -> bool:
        return not answer["error_code"] and sorted(answer["requested_metrics"]) == wanted

    peer.eventually("get_telemetry_subscriptions", 0, is_told, client_instance_id=witness)


@scenario
def ask(peer: Peer) -> None:
    """Ask without an id, with one, and again before the interval has passed."""
    _ask(peer, None)
    client = _instance_id(peer, "c")
    for _ in range(3):
        _ask(peer, client)


@scenario
def subscribed(peer: Peer) -> None:
    """Ask as clients of one, of several and of no subscription."""
    first, both, star, none = (_instance_id(peer, name) for name in ("first", "both", "star", "none"))
    _subscribe(peer, "one", [first, both, star], {"metrics": "x.,y.", "interval.ms": "2000"})
    _subscribe(peer, "two", [both, star], {"metrics": "y.,z.", "interval.ms": "1000"})
    _subscribe(peer, "all", [star], {"metrics": "*", "interval.ms": "100000"})
    for client in (first, both, star, none):
        _ask(peer, client)


@scenario
def changed(peer: Peer) -> None:
    """Change the subscription of a client that has asked and pushed: it is told at once, by both APIs."""
    client = _instance_id(peer, "c")
    _subscribe(peer, "s", [client], {"metrics": "x", "interval.ms": str(LONGEST_TOLD)})
    asked = _ask(peer, client)
    _push(peer, client, asked)
    _ask(peer, client)
    _subscribe(peer, "s", [client], {"metrics": "y"})
    _push(peer, client, asked)
    again = _ask(peer, client)
    _push(peer, client, again)
    _ask(peer, client)


@scenario
def longer_than_the_default(peer: Peer) -> None:
    client = _instance_id(peer, "c")
    _subscribe(peer, "s", [client], {"metrics": "x", "interval.ms": "3600000"})
    _ask(peer, client)


@scenario
def push(peer: Peer) -> None:
    """Push, push too early, end, and push after the end."""
    client = _instance_id(peer, "c")
    asked = _ask(peer, client)
    _push(peer, client, asked)
    _push(peer, client, asked)
    _push(peer, client, asked, terminating=True)
    _push(peer, client, asked, terminating=True)
    _push(peer, client, asked)
    _push(peer, client, asked)
    _ask(peer, client)


@scenario
def push_without_asking(peer: Peer) -> None:
    client = _instance_id(peer, "c")
    _push(peer, client, {"subscription_id": 17})
    asked = _ask(peer, client)
    _push(peer, client, asked)
    for reserved in (None, "00000000-0000-0000-0000-000000000001"):
        _push(peer, reserved, asked)


PUSHES: dict[str, Plain] = {
    "nothing": {"metrics": b""},
    "unknown id": {"subscription_id": 17},
    "unknown codec": {"compression_type": 5},
    "negative codec": {"compression_type": -1},
    "largest": {"metrics": METRICS + b"\x7a" + (1 << 20).to_bytes(3, "big")},
    "too large": {"metrics": bytes((1 << 20) + 1)},
    "no metrics": {"metrics": b"\xff"},
    "not compressed": {"compression_type": ZSTD},
    "gzip": {"metrics": compress(GZIP, METRICS), "compression_type": GZIP},
    "snappy": {"metrics": compress(SNAPPY, METRICS), "compression_type": SNAPPY},
    "lz4": {"metrics": compress(LZ4, METRICS), "compression_type": LZ4},
    "zstd": {"metrics": compress(ZSTD, METRICS), "compression_type": ZSTD},
    "bomb": {"metrics": compress(ZSTD, bytes(5 << 20)), "compression_type": ZSTD},
}


@scenario_for_each(PUSHES)
def pushes(peer: Peer, fields: Plain) -> None:
    """Push once in each way, then ask and push again."""
    client = _instance_id(peer, "c")
    asked = _ask(peer, client)
    _push(peer, client, asked, **fields)
    _ask(peer, client)
    _push(peer, client, asked)


@scenario
def closed(peer: Peer) -> None:
    """Ask over a connection that closes: the client begins anew over another."""
    client = _instance_id(peer, "c")
    other = peer.connect()
    _ask(other, client)
    _ask(peer, client)
    other.close()
    peer.eventually(
        "get_telemetry_subscriptions", 0, lambda answer: not answer["error_code"], client_instance_id=client
    )
