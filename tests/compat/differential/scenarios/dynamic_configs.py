"""Which configs of topics, brokers and loggers can be altered, and the error messages for the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seqgate.gateway.config.kept_brokers import BY_KEPT_NAME, READ_ONLY
from seqgate.gateway.config.setting import render
from tests.compat.differential.peer import Peer
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.support.wire import Plain

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
OF_THIS_BROKER, OF_ALL_BROKERS = 2, 3

Change = tuple[str, int, str | None]
Values = Mapping[str, str | None]
"""The values of configs, by name; None for a value that is not shown."""


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
    "levels of compression": [
        ("compression.gzip.level", SET, "0"),
        ("compression.gzip.level", SET, "-1"),
        ("compression.lz4.level", SET, "18"),
        ("compression.lz4.level", SET, "9"),
        ("compression.zstd.level", SET, "-200000"),
        ("compression.zstd.level", SET, "22"),
    ],
    "without effect here": [
        ("preallocate", SET, "true"),
        ("preallocate", APPEND, "true"),
        ("unclean.leader.election.enable", SET, "true"),
        ("unclean.leader.election.enable", SET, "false"),
        ("unclean.leader.election.enable", SET, "maybe"),
        ("local.retention.ms", SET, "-3"),
        ("local.retention.ms", SET, "-2"),
        ("local.retention.ms", SET, "1000"),
        ("local.retention.bytes", SET, "0"),
        ("remote.storage.enable", SET, "false"),
        ("remote.storage.enable", SET, "true"),
        ("remote.log.copy.disable", SET, "true"),
        ("remote.log.delete.on.disable", SET, "true"),
        ("remote.log.delete.on.disable", SET, "x"),
    ],
    "throttled replicas": [
        ("leader.replication.throttled.replicas", SET, ""),
        ("leader.replication.throttled.replicas", SET, " * "),
        ("follower.replication.throttled.replicas", SET, "0:1, 1:2"),
        ("leader.replication.throttled.replicas", SET, "0:1,"),
        ("leader.replication.throttled.replicas", SET, "0:1,0:1"),
        ("leader.replication.throttled.replicas", SET, "none"),
        ("follower.replication.throttled.replicas", SET, "0"),
        ("leader.replication.throttled.replicas", SET, "0:1:2"),
        ("leader.replication.throttled.replicas", SET, "-1:2"),
        ("leader.replication.throttled.replicas", SET, "*,0:1"),
        ("leader.replication.throttled.replicas", APPEND, "0:1"),
        ("leader.replication.throttled.replicas", APPEND, "x"),
        ("leader.replication.throttled.replicas", SUBTRACT, "0:1"),
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


WITHOUT_EFFECT_ON_A_TOPIC = {
    "follower.replication.throttled.replicas": "*",
    "leader.replication.throttled.replicas": "0:1,1:2",
    "local.retention.bytes": "1000",
    "local.retention.ms": "1000",
    "preallocate": "true",
    "remote.log.copy.disable": "true",
    "remote.log.delete.on.disable": "true",
    "unclean.leader.election.enable": "true",
}


@scenario
def topic_keeps_what_has_no_effect(peer: Peer) -> None:
    """Create a topic with the settings that have no effect in Seqgate, describe them, and unset one."""
    topic = peer.topic(configs=WITHOUT_EFFECT_ON_A_TOPIC).name
    peer.note("created", **_described(peer, TOPIC, topic, list(WITHOUT_EFFECT_ON_A_TOPIC)))
    _alter(peer, TOPIC, topic, ("unclean.leader.election.enable", DELETE, None), validate_only=False)
    _shows(peer, TOPIC, topic, {"unclean.leader.election.enable": "false"})


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
    [("no.such", SET, "1"), ("consumer_byte_rate", SET, "")],
    [("no.such", APPEND, "1")],
    [("no.such", SET, "1"), ("num.partitions", SET, "1")],
    [("sasl.kerberos.min.time.before.relogin", SET, "58000")],
    [("sasl.kerberos.min.time.before.relogin", SET, "x")],
    [("sasl.kerberos.principal.to.local.rules", APPEND, "RULE")],
    [("sasl.login.refresh.buffer.seconds", SET, "99999")],
    [("sasl.login.refresh.window.factor", SET, "")],
    [("ssl.engine.factory.class", SET, "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory")],
    [("ssl.engine.factory.class", SET, "com.example.Mine")],
    [("ssl.keystore.location", SET, "/none"), ("sasl.kerberos.min.time.before.relogin", SET, "x")],
    [("leader.replication.throttled.rate", SET, "1000"), ("num.replica.fetchers", SET, "2")],
    [("leader.replication.throttled.rate", SET, "-1")],
    [("num.io.threads", SET, " 9 "), ("background.threads", SET, "5"), ("num.network.threads", SET, "6")],
    [("num.io.threads", SET, "0")],
    [("num.io.threads", APPEND, "1")],
    [("remote.log.reader.threads", SET, "20"), ("remote.fetch.max.wait.ms", SET, "1")],
    [("group.coordinator.cached.buffer.max.bytes", SET, "6")],
    [("config.providers", SET, "a,,b")],
    [("metric.reporters", SET, "")],
    [("cordoned.log.dirs", SET, "*")],
    [("log.preallocate", SET, "true"), ("unclean.leader.election.enable", SET, "true")],
    [("log.local.retention.ms", SET, "1000"), ("log.local.retention.bytes", SET, "-3")],
    [("process.roles", SET, "broker"), ("no.such", SET, "1")],
    [("broker.id", APPEND, "4")],
    [("broker.id", DELETE, None)],
    [("listener.name.plaintext.no.such", SET, "5")],
    [("listener.name.plaintext.sasl.kerberos.min.time.before.relogin", SET, "5")],
    [("listener.name.plaintext.sasl.kerberos.min.time.before.relogin", SET, "x")],
    [("listener.name.plaintext.num.network.threads", SET, "5")],
    [("listener.name.plaintext.log.retention.ms", SET, "5")],
    [("listener.name.plaintext.log.retention.ms", SET, "x")],
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
    _alter(peer, BROKER, node, ("num.io.threads", SET, "17"))
    _alter(peer, BROKER, node, ("num.io.threads", SET, "3"))
    _alter(peer, BROKER, node, ("num.io.threads", SET, "3"), ("no.such", SET, "1"))
    _alter(peer, BROKER, "", ("remote.log.manager.copier.thread.pool.size", SET, "21"))
    _alter(peer, BROKER, node, ("listener.name.plaintext.num.network.threads", SET, "7"))
    _alter(peer, BROKER, node, ("metric.reporters", SET, "com.example.Mine"))
    _alter(peer, BROKER, node, ("cordoned.log.dirs", SET, "/nowhere"))


@scenario_for_each({"kept here": sorted(BY_KEPT_NAME), "fixed": sorted(READ_ONLY)})
def broker_settings_of_kafka_only(peer: Peer, names: Sequence[str]) -> None:
    """Alter each setting that only Kafka has to its default, for one broker and for all."""
    node = _node(peer)
    for name in names:
        default = render(BY_KEPT_NAME[name].default) if name in BY_KEPT_NAME else "1"
        for broker in (node, ""):
            _alter(peer, BROKER, broker, (name, SET, default or ""))


@scenario
def broker_keeps_what_has_no_effect(peer: Peer) -> None:
    """Set and describe settings without effect in Seqgate, and unknown names, of one broker and of all."""
    node, unknown = _node(peer), f"{peer.name('')}unknown"
    kerberos = "sasl.kerberos.ticket.renew.jitter"
    of_node = (
        node,
        {
            kerberos: "5.0",
            "sasl.kerberos.principal.to.local.rules": "RULE,DEFAULT",
            "replica.alter.log.dirs.io.max.bytes.per.second": "1000",
            unknown: None,
        },
    )
    of_listener = (
        node,
        {
            f"listener.name.plaintext.{kerberos}": "0.5",
            f"listener.name.plaintext.{unknown}": None,
            "listener.name.plaintext.log.retention.hours": "7",
        },
    )
    of_all = "", {"remote.fetch.max.wait.ms": "600", "background.threads": " 12", unknown: None}
    for broker, values in (of_node, of_listener, of_all):
        changes = [(name, SET, value or "secret") for name, value in values.items()]
        _alter(peer, BROKER, broker, *changes, validate_only=False)
        _shows(peer, BROKER, broker, values)
    _shows(peer, BROKER, node, {**of_node[1], **of_all[1], "background.threads": "12"})
    # Kafka refuses to unset settings of SASL while the listener's are set, so the listener comes first
    for broker, values in (of_listener, of_node, of_all):
        _alter(peer, BROKER, broker, *[(name, DELETE, None) for name in values], validate_only=False)
        _shows_nothing_of(peer, broker, list(values))


def _shows(peer: Peer, kind: int, name: str, values: Values) -> None:
    """Wait until the resource has these configs with these values; record them."""

    def holds(answer: Plain) -> bool:
        found = {config["name"]: config["value"] for config in answer["results"][0]["configs"]}
        return all(key in found and found[key] == value for key, value in values.items())

    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": list(values)}
    answer = peer.until("describe_configs", 4, holds, {"resources": [resource], "include_synonyms": True})
    peer.note(f"described {name == ''}", configs=answer["results"][0]["configs"])


def _shows_nothing_of(peer: Peer, broker: str, keys: Sequence[str]) -> None:
    """Wait until these configs have no value that was set for this broker; an empty `broker` means all."""
    source = OF_THIS_BROKER if broker else OF_ALL_BROKERS

    def holds(answer: Plain) -> bool:
        return all(config["config_source"] != source for config in answer["results"][0]["configs"])

    resource = {"resource_type": BROKER, "resource_name": broker, "configuration_keys": keys}
    peer.until("describe_configs", 4, holds, {"resources": [resource]})


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
