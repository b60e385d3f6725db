"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.compat.differential.peer import Peer, Topic, produce_request
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.support.batches import Batch, Record
from tests.support.wire import Plain

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
OF_THE_TOPIC = 1
NAMES = ["retention.ms", "cleanup.policy", "max.message.bytes", "segment.bytes", "message.timestamp.type"]


def _describe(
    peer: Peer, kind: int, name: str, keys: list[str] | None = None, *, version: int = 4, **more: Any
) -> Plain:
    wanted = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    return peer.call("describe_configs", version, resources=[wanted], **more)


def _settled(peer: Peer, topic: Topic, expected: Mapping[str, str], *, source: int | None = None) -> None:
    """Wait until the topic shows these values, with this source if one is given; record the configs in NAMES."""

    def shows(answer: Plain) -> bool:
        found = {config["name"]: config for config in answer["results"][0]["configs"]}
        return all(
            name in found and found[name]["value"] == value and source in (None, found[name]["config_source"])
            for name, value in expected.items()
        )

    wanted = {"resource_type": TOPIC, "resource_name": topic.name, "configuration_keys": NAMES}
    peer.eventually("describe_configs", 4, shows, resources=[wanted], include_synonyms=True)


def _alter(
    peer: Peer, topic: Topic, configs: Mapping[str, str | None], *, version: int = 2, **more: Any
) -> Plain:
    rows = [{"name": name, "value": value} for name, value in configs.items()]
    wanted = {"resource_type": TOPIC, "resource_name": topic.name, "configs": rows}
    return peer.call("alter_configs", version, resources=[wanted], **more)


def _incremental(
    peer: Peer,
    name: str,
    *operations: tuple[str, int, str | None],
    version: int = 1,
    kind: int = TOPIC,
    **more: Any,
) -> Plain:
    rows = [
        {"name": key, "config_operation": operation, "value": value} for key, operation, value in operations
    ]
    wanted = {"resource_type": kind, "resource_name": name, "configs": rows}
    return peer.call("incremental_alter_configs", version, resources=[wanted], **more)


def _node(peer: Peer) -> str:
    return str(peer.wire.call("metadata", 12, topics=[]).fields["brokers"][0]["node_id"])


@scenario_for_each(range(1, 5))
def describe_topic(peer: Peer, version: int) -> None:
    topic = peer.topic(configs={"retention.ms": "7777", "segment.bytes": "2000000"})
    _describe(peer, TOPIC, topic.name, version=version)
    _describe(peer, TOPIC, topic.name, NAMES, version=version, include_synonyms=True)
    _describe(peer, TOPIC, topic.name, NAMES, version=version, include_documentation=True)


@scenario_for_each({"unknown": ["no.such.config"], "mixed": ["retention.ms", "no.such.config"], "none": []})
def describe_keys(peer: Peer, keys: list[str]) -> None:
    _describe(peer, TOPIC, peer.topic().name, keys)


@scenario_for_each((1, 4))
def describe_nothing_known(peer: Peer, version: int) -> None:
    _describe(peer, TOPIC, peer.name("nowhere"), NAMES, version=version)
    _describe(peer, TOPIC, "", NAMES, version=version)
    _describe(peer, TOPIC, "a b", NAMES, version=version)
    _describe(peer, 99, "x", NAMES, version=version)
    _describe(peer, 0, "x", NAMES, version=version)
    _describe(peer, BROKER, "98", NAMES, version=version)
    _describe(peer, BROKER, "not a number", NAMES, version=version)
    peer.call("describe_configs", version, resources=[])


BROKER_NAMES = ["log.segment.bytes", "message.max.bytes", "num.partitions", "auto.create.topics.enable"]


@scenario_for_each(range(1, 5))
def describe_broker(peer: Peer, version: int) -> None:
    """Compare names and types. Values are each broker's own, except those that both brokers were started
    with."""
    _, _ = _node(peer), version
    answer = peer.wire.call(
        "describe_configs",
        version,
        resources=[
            {"resource_type": BROKER, "resource_name": _node(peer), "configuration_keys": BROKER_NAMES}
        ],
    ).fields["results"][0]
    shown = {config["name"]: (config["value"], config.get("config_type")) for config in answer["configs"]}
    peer.note("broker configs", error_code=answer["error_code"], shown=shown)


@scenario
def describe_several(peer: Peer) -> None:
    one, two = peer.topic("one"), peer.topic("two", configs={"retention.ms": "5"})
    names = [one.name, two.name, peer.name("nowhere"), one.name]
    wanted = [{"resource_type": TOPIC, "resource_name": name, "configuration_keys": NAMES} for name in names]
    peer.call("describe_configs", 4, resources=wanted)
    peer.call("describe_configs", 4, resources=wanted[:3])


@scenario_for_each(range(3))
def alter(peer: Peer, version: int) -> None:
    """Replace all configs that were set before (AlterConfigs)."""
    topic = peer.topic(configs={"retention.ms": "7777", "segment.bytes": "2000000"})
    _alter(peer, topic, {"max.message.bytes": "5000"}, version=version)
    _settled(peer, topic, {"max.message.bytes": "5000", "retention.ms": "604800000"})
    _alter(peer, topic, {}, version=version)
    _settled(peer, topic, {"max.message.bytes": "1048588"})


ALTERED: dict[str, tuple[str, str | None]] = {
    "unknown": ("no.such.config", "1"),
    "invalid": ("retention.ms", "soon"),
    "null": ("retention.ms", None),
    "too small": ("segment.bytes", "1"),
    "empty policy": ("cleanup.policy", ""),
    "bad policy": ("cleanup.policy", "burn"),
}


@scenario_for_each(ALTERED)
def alter_badly(peer: Peer, config: tuple[str, str | None]) -> None:
    topic = peer.topic()
    _alter(peer, topic, {config[0]: config[1]})
    _incremental(peer, topic.name, (config[0], SET, config[1]))


@scenario
def alter_what(peer: Peer) -> None:
    topic = peer.topic()
    _alter(peer, Topic(peer.name("nowhere"), ""), {"retention.ms": "1"})
    _alter(peer, topic, {"retention.ms": "1"}, validate_only=True)
    _incremental(peer, peer.name("nowhere"), ("retention.ms", SET, "1"))
    _incremental(peer, "", ("retention.ms", SET, "1"))
    _incremental(peer, topic.name, ("retention.ms", SET, "1"), validate_only=True)
    _incremental(peer, topic.name)
    _incremental(peer, "x", ("retention.ms", SET, "1"), kind=99)
    _incremental(peer, "98", ("log.retention.ms", SET, "1"), kind=BROKER)
    _settled(peer, topic, {})


@scenario
def altered_resource_twice(peer: Peer) -> None:
    topic = peer.topic()
    rows = [{"name": "retention.ms", "config_operation": SET, "value": "1"}]
    resource = {"resource_type": TOPIC, "resource_name": topic.name}
    peer.call_briefly("incremental_alter_configs", 1, resources=[{**resource, "configs": rows}] * 2)
    plain = [{"name": "retention.ms", "value": "1"}]
    peer.call_briefly("alter_configs", 2, resources=[{**resource, "configs": plain}] * 2)
    _settled(peer, topic, {})


@scenario_for_each(range(2))
def incremental(peer: Peer, version: int) -> None:
    topic = peer.topic(configs={"retention.ms": "7777"})
    _incremental(peer, topic.name, ("max.message.bytes", SET, "5000"), version=version)
    _settled(peer, topic, {"max.message.bytes": "5000", "retention.ms": "7777"})
    _incremental(peer, topic.name, ("retention.ms", DELETE, None), version=version)
    _settled(peer, topic, {"retention.ms": "604800000"})
    _incremental(peer, topic.name, ("max.message.bytes", DELETE, "ignored"), version=version)
    _settled(peer, topic, {"max.message.bytes": "1048588"})
    _incremental(peer, topic.name, ("cleanup.policy", APPEND, "delete"), version=version)
    _settled(peer, topic, {"cleanup.policy": "delete"}, source=OF_THE_TOPIC)


@scenario
def compaction(peer: Peer) -> None:
    topic = peer.topic()
    _incremental(peer, topic.name, ("cleanup.policy", APPEND, "compact"))


OPERATIONS: dict[str, list[tuple[str, int, str | None]]] = {
    "append to a number": [("retention.ms", APPEND, "1")],
    "subtract from a number": [("retention.ms", SUBTRACT, "1")],
    "unknown operation": [("retention.ms", 9, "1")],
    "same name twice": [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
    "set and delete": [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)],
    "append twice": [("cleanup.policy", APPEND, "delete")],
    "append null": [("cleanup.policy", APPEND, None)],
    "subtract what is not there": [("cleanup.policy", SUBTRACT, "compact")],
    "subtract everything": [("cleanup.policy", SUBTRACT, "delete")],
    "delete what is not set": [("retention.ms", DELETE, None)],
    "delete unknown": [("no.such.config", DELETE, None)],
    "one good, one bad": [("retention.ms", SET, "1"), ("segment.bytes", SET, "x")],
}


@scenario_for_each(OPERATIONS)
def incremental_operation(peer: Peer, operations: list[tuple[str, int, str | None]]) -> None:
    topic = peer.topic()
    _incremental(peer, topic.name, *operations)
    if len(operations) == 1 and operations[0][0] == "cleanup.policy":
        return
    _settled(peer, topic, {})


@scenario
def changes_take_effect(peer: Peer) -> None:
    """Lower max.message.bytes and raise it again while the topic is in use."""
    topic = peer.topic()
    request = produce_request(topic, Batch((Record(value=b"x" * 2_000),)))
    for operation, value, error_code in ((SET, "1000", 10), (DELETE, None, 0)):
        _incremental(peer, topic.name, ("max.message.bytes", operation, value))
        _settled(peer, topic, {"max.message.bytes": value or "1048588"})
        answers = peer.until("produce", 9, _answers(error_code), request)
        peer.note("an answer that shows the change came", came=answers is not None)


def _answers(error_code: int) -> Callable[[Plain], bool]:
    return lambda answer: answer["responses"][0]["partition_responses"][0]["error_code"] == error_code
