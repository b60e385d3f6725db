"""Which configs of topics, brokers and loggers can be altered, and the error messages for the others."""

from __future__ import annotations

from collections.abc import Sequence

from tests.compat.differential.peer import Peer
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.support.wire import Plain

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

Change = tuple[str, int, str | None]


def _alter(peer: Peer, kind: int, name: str, *changes: Change, validate_only: bool = True) -> None:
    """Record the error code and the exact error message."""
    rows = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": rows}
    answer = peer.wire.call(
        "incremental_alter_configs", 1, resources=[resource], validate_only=validate_only
    ).fields["responses"][0]
    label = f"{name.removeprefix(peer.name(''))} {changes}"
    peer.note(label, error_code=answer["error_code"], said=answer["error_message"])


def _described(peer: Peer, kind: int, name: str, keys: Sequence[str] | None = None) -> Plain:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    answer = peer.wire.call("describe_configs", 4, resources=[resource], include_synonyms=True)
    result: Plain = answer.fields["results"][0]
    return result


def _node(peer: Peer) -> str:
    return str(peer.wire.call("metadata", 12, topics=[]).fields["brokers"][0]["node_id"])


TOPIC_CHANGES: dict[str, Sequence[Change]] = {
    "numbers": [
        ("retention.ms", SET, "soon"),
        ("retention.ms", SET, ""),
        ("retention.ms", SET, " 5 "),
        ("retention.ms", SET, "+5"),
        ("retention.ms", SET, "1.5"),
        ("retention.ms", SET, "1_000"),
        ("retention.ms", SET, "-2"),
        ("retention.ms", SET, "-1"),
        ("retention.ms", SET, "0"),
        ("retention.ms", SET, "9223372036854775807"),
        ("retention.ms", SET, "9223372036854775808"),
        ("retention.bytes", SET, "-2"),
        ("segment.bytes", SET, "2147483648"),
        ("segment.bytes", SET, "1048575"),
        ("segment.bytes", SET, "1048576"),
    ],
    "lower bounds": [
        ("segment.index.bytes", SET, "3"),
        ("segment.ms", SET, "0"),
        ("max.message.bytes", SET, "-1"),
        ("min.insync.replicas", SET, "0"),
        ("flush.messages", SET, "0"),
        ("flush.ms", SET, "-1"),
        ("file.delete.delay.ms", SET, "-1"),
        ("index.interval.bytes", SET, "-1"),
        ("message.timestamp.before.max.ms", SET, "-1"),
        ("message.timestamp.after.max.ms", SET, "-1"),
    ],
    "choices": [
        ("message.timestamp.type", SET, "x"),
        ("message.timestamp.type", SET, "createtime"),
        ("cleanup.policy", SET, "delete,delete"),
        ("cleanup.policy", APPEND, "delete"),
        ("cleanup.policy", SUBTRACT, "delete"),
        ("preallocate", SET, "yes"),
        ("preallocate", SET, " FALSE "),
    ],
    "of what is fixed here": [
        ("compression.gzip.level", SET, "0"),
        ("compression.gzip.level", SET, "-1"),
        ("compression.lz4.level", SET, "18"),
        ("compression.lz4.level", SET, "9"),
        ("compression.zstd.level", SET, "-200000"),
        ("compression.zstd.level", SET, "3"),
        ("local.retention.ms", SET, "-3"),
        ("local.retention.ms", SET, "-2"),
        ("local.retention.bytes", SET, "-2"),
        ("remote.storage.enable", SET, "false"),
        ("leader.replication.throttled.replicas", SET, ""),
        ("unclean.leader.election.enable", SET, "false"),
    ],
}


@scenario_for_each(TOPIC_CHANGES)
def topic(peer: Peer, changes: Sequence[Change]) -> None:
    name = peer.topic().name
    for change in changes:
        _alter(peer, TOPIC, name, change)


@scenario
def every_configuration_of_a_topic(peer: Peer) -> None:
    """Describe all configs of a topic, one of them set: value, source, type and synonyms."""
    topic = peer.topic(configs={"segment.ms": "7777"})
    peer.note("configurations", **_described(peer, TOPIC, topic.name))


@scenario
def topic_in_other_words(peer: Peer) -> None:
    name = peer.topic().name
    _alter(peer, TOPIC, name, ("cleanup.policy", APPEND, ""))
    _alter(peer, TOPIC, name, ("cleanup.policy", SET, "delete,"))
    _alter(peer, TOPIC, name, ("message.format.version", SET, "2.0"))
    _alter(peer, TOPIC, name, ("retention.mss", SET, "2"))


@scenario
def topic_not_as_here(peer: Peer) -> None:
    """Set configs that Kafka accepts and Seqgate refuses, because they would have no effect in Seqgate."""
    name = peer.topic().name
    _alter(peer, TOPIC, name, ("preallocate", SET, "true"))
    _alter(peer, TOPIC, name, ("compression.zstd.level", SET, "22"))
    _alter(peer, TOPIC, name, ("unclean.leader.election.enable", SET, "true"))
    _alter(peer, TOPIC, name, ("leader.replication.throttled.replicas", SET, "*"))
    _alter(peer, TOPIC, name, ("local.retention.ms", SET, "1000"))
    _alter(peer, TOPIC, name, ("remote.storage.enable", SET, "true"))


@scenario
def create(peer: Peer) -> None:
    for config in (("retention.ms", "x"), ("retention.ms", None), ("segment.bytes", "1"), ("flush.ms", "-1")):
        configs = [{"name": config[0], "value": config[1]}]
        wanted = {"name": peer.name("u"), "num_partitions": 1, "replication_factor": 1, "configs": configs}
        answer = peer.wire.call("create_topics", 7, topics=[wanted], timeout=10_000).fields["topics"][0]
        peer.note(str(config), error_code=answer["error_code"], said=answer["error_message"])


BROKER_CHANGES: Sequence[Sequence[Change]] = (
    [("message.max.bytes", SET, "x")],
    [("message.max.bytes", SET, "-1")],
    [("message.max.bytes", SET, None)],
    [("log.segment.bytes", SET, "1")],
    [("num.partitions", SET, "1")],
    [("num.partitions", DELETE, None)],
    [("no.such", DELETE, None)],
    [("log.retention.check.interval.ms", SET, "1")],
    [("node.id", SET, "3"), ("log.retention.hours", SET, "1")],
    [("log.retention.ms", SET, "1"), ("log.retention.ms", SET, "2")],
    [("producer.id.expiration.ms", SET, "0")],
    [("log.retention.bytes", SET, "-5")],
    [("max.connections.per.ip.overrides", SET, "127.0.0.1:5")],
    [("log.cleanup.policy", SUBTRACT, "compact")],
    [("max.connection.creation.rate", SET, "x")],
    [("max.connection.creation.rate", SET, "5")],
    [("ssl.keystore.location", SET, "/none"), ("ssl.truststore.type", SET, "PEM")],
    [("listener.name.plaintext.max.connections", SET, "x")],
    [("listener.name.plaintext.max.connections", SET, "5")],
    [("listener.name.plaintext.max.connection.creation.rate", SET, "5")],
    [("listener.name.plaintext.max.connection.creation.rate", DELETE, None)],
)


@scenario_for_each({"this": True, "all": False})
def broker(peer: Peer, is_this: bool) -> None:
    name = _node(peer) if is_this else ""
    for changes in BROKER_CHANGES:
        _alter(peer, BROKER, name, *changes)


@scenario
def broker_in_other_words(peer: Peer) -> None:
    """Set values for which Kafka's error message names the Java class that failed."""
    node = _node(peer)
    _alter(peer, BROKER, node, ("log.retention.ms", SET, "0"))
    _alter(peer, BROKER, node, ("max.connections.per.ip", SET, "0"))
    _alter(peer, BROKER, node, ("max.connections", SET, "0"))
    _alter(peer, BROKER, node, ("log.roll.ms", SET, "0"))


@scenario
def broker_names_unknown(peer: Peer) -> None:
    _alter(peer, BROKER, _node(peer), ("no.such", SET, "1"))


@scenario
def what_can_be_altered_on_a_broker(peer: Peer) -> None:
    """Compare all settings that both endpoints have: their types, and whether they can be altered."""
    configs = _described(peer, BROKER, _node(peer))["configs"]
    rows = [
        {"name": config["name"], "read_only": config["read_only"], "config_type": config["config_type"]}
        for config in configs
    ]
    peer.note("settings", configs=sorted(rows, key=lambda row: str(row["name"])))


DELAY, OF_A_TOPIC = "log.segment.delete.delay.ms", "file.delete.delay.ms"


@scenario
def synonyms(peer: Peer) -> None:
    """Compare the order of synonyms: the topic's own value, this broker's, all brokers', the default."""
    node, topic = _node(peer), peer.topic().name

    def shown(kind: int, name: str, key: str, value: str) -> None:
        resource = {"resource_type": kind, "resource_name": name, "configuration_keys": [key]}

        def holds(answer: Plain) -> bool:
            return any(config["value"] == value for config in answer["results"][0]["configs"])

        asked = {"resources": [resource], "include_synonyms": True}
        answer = peer.until("describe_configs", 4, holds, asked)
        peer.note(f"{key} is {value}", **answer["results"][0]["configs"][0])

    def alter(kind: int, name: str, key: str, value: str | None) -> None:
        change = (key, DELETE if value is None else SET, value)
        _alter(peer, kind, name, change, validate_only=False)

    alter(BROKER, "", DELAY, "60001")
    shown(BROKER, node, DELAY, "60001")
    shown(TOPIC, topic, OF_A_TOPIC, "60001")
    alter(BROKER, node, DELAY, "60002")
    shown(BROKER, node, DELAY, "60002")
    shown(BROKER, "", DELAY, "60001")
    shown(TOPIC, topic, OF_A_TOPIC, "60002")
    alter(TOPIC, topic, OF_A_TOPIC, "60003")
    shown(TOPIC, topic, OF_A_TOPIC, "60003")
    alter(BROKER, node, DELAY, None)
    shown(BROKER, node, DELAY, "60001")
    shown(TOPIC, topic, OF_A_TOPIC, "60003")
    alter(BROKER, "", DELAY, None)
    shown(BROKER, node, DELAY, "60000")
    alter(TOPIC, topic, OF_A_TOPIC, None)
    shown(TOPIC, topic, OF_A_TOPIC, "60000")


@scenario
def loggers(peer: Peer) -> None:
    node = _node(peer)
    _alter(peer, BROKER_LOGGER, node, ("root", SET, "WARN"))
    for change in (
        ("nope", SET, "WARN"),
        ("nope", DELETE, None),
        ("root", SET, "LOUD"),
        ("root", SET, "warn"),
        ("root", APPEND, "WARN"),
        ("root", SUBTRACT, "WARN"),
        ("root", SET, None),
    ):
        _alter(peer, BROKER_LOGGER, node, change)
    _alter(peer, BROKER_LOGGER, node, ("root", SET, "WARN"), ("root", SET, "INFO"))
    _alter(peer, BROKER_LOGGER, node, ("root", SET, "FATAL"), ("nope", SET, "INFO"), validate_only=False)
    for name in ("98", "", "x"):
        _alter(peer, BROKER_LOGGER, name, ("root", SET, "INFO"))
        said = _described(peer, BROKER_LOGGER, name)
        peer.note(f"describe {name}", error_code=said["error_code"], said=said["error_message"])
    for level in ("FATAL", "INFO"):
        _alter(peer, BROKER_LOGGER, node, ("root", SET, level), validate_only=False)
        peer.note("described", **_described(peer, BROKER_LOGGER, node, ["root"]))
    rows = [{"name": "root", "value": "WARN"}]
    resource = {"resource_type": BROKER_LOGGER, "resource_name": node, "configs": rows}
    peer.call("alter_configs", 2, resources=[resource])
