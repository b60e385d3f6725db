from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from seqgate.gateway.config import BY_TOPIC_NAME, Config, ConfigSource, load_config
from seqgate.gateway.handlers.admin.configs import alter_configs, replacing
from seqgate.gateway.metadata.configs import Alteration, ConfigChange, ConfigOperation
from seqgate.gateway.metadata.decision import ApiError
from seqgate.gateway.metadata.described import describe_all_brokers, describe_broker, describe_topic
from seqgate.gateway.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from seqgate.gateway.metadata.records import ConfigRecord
from seqgate.gateway.metadata.topics import TopicCreation
from tests.gateway.metadata.support import NODE_ID, image_with, replay

CONFIG = load_config()
OF_COMPACTION = {
    "delete.retention.ms",
    "max.compaction.lag.ms",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
}
KAFKA_TOPIC_CONFIGS = {
    "cleanup.policy",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delete.retention.ms",
    "errors.deadletterqueue.group.enable",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "follower.replication.throttled.replicas",
    "index.interval.bytes",
    "leader.replication.throttled.replicas",
    "local.retention.bytes",
    "local.retention.ms",
    "max.compaction.lag.ms",
    "max.decompressed.message.bytes",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "preallocate",
    "remote.copy.lag.bytes",
    "remote.copy.lag.ms",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
    "unclean.leader.election.enable",
}
"""The settings of Apache Kafka 4.4.0, as its DescribeConfigs returns them."""
SET, DELETE, APPEND, SUBTRACT = (
    ConfigOperation.SET,
    ConfigOperation.DELETE,
    ConfigOperation.APPEND,
    ConfigOperation.SUBTRACT,
)


def image() -> MetadataImage:
    return image_with(TopicCreation(name="t", configs=[("retention.bytes", "10")]))


def names(errors: Sequence[ApiError | None]) -> list[str]:
    return ["none" if error is None else error.error_code.name for error in errors]


def incremental(resource_type: int, resource_name: str, *changes: tuple[str, int, str | None]) -> Alteration:
    return Alteration(
        resource_type,
        resource_name,
        [ConfigChange(name, value, operation) for name, operation, value in changes],
    )


class TestIncremental:
    @pytest.mark.parametrize(
        ("alteration", "error"),
        [
            (incremental(2, "t", ("retention.ms", SET, "5000")), "none"),
            (incremental(2, "t", ("retention.ms", SET, None)), "invalid_request"),
            (incremental(2, "t", ("retention.mss", SET, "1")), "invalid_config"),
            (incremental(2, "t", ("retention.mss", DELETE, None)), "none"),
            (incremental(2, "t", ("retention.ms", APPEND, "1")), "invalid_config"),
            (incremental(2, "t", ("unknown", APPEND, "x")), "invalid_config"),
            (incremental(2, "t", ("cleanup.policy", APPEND, "delete")), "none"),
            (incremental(2, "t", ("cleanup.policy", APPEND, "x")), "invalid_config"),
            (incremental(2, "t", ("cleanup.policy", SUBTRACT, "delete")), "none"),
            (
                incremental(2, "t", ("retention.ms", SET, "1"), ("retention.ms", DELETE, None)),
                "invalid_request",
            ),
            (incremental(2, "t", ("retention.ms", 9, "1")), "invalid_request"),
            (incremental(2, "none", ("retention.ms", SET, "1")), "unknown_topic_or_partition"),
            (incremental(2, "none", ("retention.mss", SET, "1")), "invalid_config"),
            (incremental(2, "", ("retention.ms", SET, "1")), "invalid_request"),
            (incremental(2, "a b", ("retention.ms", SET, "1")), "invalid_topic_exception"),
            (incremental(2, "t"), "none"),
            (incremental(4, "1", ("log.segment.bytes", SET, "2000000")), "none"),
            (incremental(4, "", ("log.segment.bytes", SET, "2000000")), "none"),
            (incremental(4, "2", ("log.segment.bytes", SET, "2000000")), "invalid_request"),
            (incremental(4, "x", ("log.segment.bytes", SET, "2000000")), "invalid_request"),
            (incremental(4, "1", ("log.segment.bytes", SET, "1")), "invalid_request"),
            (incremental(4, "1", ("num.partitions", SET, "1")), "invalid_request"),
            (incremental(4, "1", ("unknown", SET, "1")), "none"),
            (incremental(4, "1", ("num.partitions", DELETE, None)), "none"),
            (incremental(4, "1", ("log.retention.ms", SET, "0")), "invalid_request"),
            (
                incremental(
                    4,
                    "1",
                    ("log.cleaner.threads", SET, "2"),
                    ("log.cleaner.dedupe.buffer.size", SET, "2097152"),
                ),
                "none",
            ),
            (
                incremental(
                    4,
                    "",
                    ("log.cleaner.threads", SET, "2"),
                    ("log.cleaner.dedupe.buffer.size", SET, "2097151"),
                ),
                "invalid_request",
            ),
            (
                incremental(
                    4,
                    "1",
                    ("log.cleaner.threads", SET, "0"),
                    ("log.cleaner.dedupe.buffer.size", SET, "1048576"),
                ),
                "none",
            ),
            (incremental(4, "1", ("group.share.assignment.interval.ms", SET, "15000")), "none"),
            (incremental(4, "1", ("group.share.assignment.interval.ms", SET, "15001")), "invalid_request"),
            (
                incremental(4, "1", ("log.message.deduplication.name.header", SET, "dedup.epoch")),
                "invalid_request",
            ),
            (incremental(2, "t", ("message.deduplication.expiration.ms", SET, "0")), "invalid_config"),
            (
                incremental(
                    2,
                    "t",
                    ("message.deduplication.enable", SET, "true"),
                    ("message.deduplication.name.header", SET, "dedup.epoch"),
                ),
                "invalid_config",
            ),
            (incremental(4, "1", ("max.connections", SET, "0")), "invalid_request"),
            (incremental(4, "1", ("max.connections.per.ip", SET, "0")), "invalid_request"),
            (
                incremental(
                    4,
                    "1",
                    ("max.connections.per.ip", SET, "0"),
                    ("max.connections.per.ip.overrides", SET, "127.0.0.1:5"),
                ),
                "none",
            ),
            (incremental(2, "t", ("cleanup.policy", APPEND, "")), "invalid_config"),
            (incremental(2, "t", ("cleanup.policy", APPEND, "compact,,")), "none"),
            (incremental(2, "t", ("cleanup.policy", APPEND, ",compact")), "invalid_config"),
            (incremental(2, "t", ("cleanup.policy", APPEND, ",")), "none"),
            (incremental(2, "t", ("preallocate", SET, "true")), "none"),
            (
                incremental(2, "t", ("leader.replication.throttled.replicas", SET, "0:1," * 8191 + "0:10")),
                "invalid_config",
            ),
            (incremental(2, "t", ("remote.storage.enable", SET, "true")), "invalid_config"),
            (incremental(8, "1", ("kafka", SET, "INFO")), "invalid_config"),
            (incremental(8, "1", ("gateway", SET, "INFO")), "none"),
            (incremental(8, "1", ("gateway", SET, "LOUD")), "invalid_config"),
            (incremental(8, "1", ("gateway", APPEND, "INFO")), "invalid_request"),
            (incremental(8, "1", ("gateway", 9, "INFO")), "invalid_request"),
            (incremental(8, "2", ("gateway", SET, "INFO")), "invalid_request"),
            (incremental(16, "s", ("interval.ms", SET, "1000")), "none"),
            (incremental(0, "x", ("a", SET, "1")), "invalid_request"),
            (incremental(99, "x", ("a", SET, "1")), "invalid_request"),
        ],
    )
    def test_as_kafka_answers(self, alteration: Alteration, error: str) -> None:
        decision = alter_configs(image(), [alteration], config=CONFIG, node_id=NODE_ID, loggers=["gateway"])
        assert names(decision.answer) == [error]
        if error != "none":
            assert decision.records == []

    def test_an_unknown_name_gets_the_nearest_one_as_a_hint(self) -> None:
        decision = alter_configs(
            image(), [incremental(2, "t", ("retention.mss", SET, "1"))], config=CONFIG, node_id=NODE_ID
        )
        assert decision.answer[0] is not None
        assert decision.answer[0].message is not None
        assert "retention.ms)" in decision.answer[0].message

    def test_set_delete_append_subtract(self) -> None:
        state = image()
        replay(
            state,
            alter_configs(state, [incremental(2, "t", ("retention.ms", SET, "7"))], config=CONFIG, node_id=1),
        )
        assert state.topic_configs("t") == {"retention.bytes": "10", "retention.ms": "7"}
        replay(
            state,
            alter_configs(
                state, [incremental(2, "t", ("retention.ms", DELETE, None))], config=CONFIG, node_id=1
            ),
        )
        assert state.topic_configs("t") == {"retention.bytes": "10"}
        replay(
            state,
            alter_configs(
                state, [incremental(2, "t", ("cleanup.policy", SUBTRACT, "delete"))], config=CONFIG, node_id=1
            ),
        )
        assert state.topic_configs("t")["cleanup.policy"] == ""
        replay(
            state,
            alter_configs(
                state, [incremental(2, "t", ("cleanup.policy", APPEND, "delete"))], config=CONFIG, node_id=1
            ),
        )
        assert state.topic_configs("t")["cleanup.policy"] == "delete"

    def test_an_unchanged_value_makes_no_record(self) -> None:
        decision = alter_configs(
            image(), [incremental(2, "t", ("retention.bytes", SET, "10"))], config=CONFIG, node_id=NODE_ID
        )
        assert decision.records == []

    def test_a_refused_resource_does_not_affect_the_others(self) -> None:
        decision = alter_configs(
            image(),
            [
                incremental(2, "none", ("retention.ms", SET, "1")),
                incremental(2, "t", ("retention.ms", SET, "1")),
            ],
            config=CONFIG,
            node_id=NODE_ID,
        )
        assert names(decision.answer) == ["unknown_topic_or_partition", "none"]
        assert len(decision.records) == 1

    def test_a_resource_twice_is_refused_both_times(self) -> None:
        twice = [incremental(2, "t", ("retention.ms", SET, "1"))] * 2
        assert (
            names(alter_configs(image(), twice, config=CONFIG, node_id=NODE_ID).answer)
            == ["invalid_request"] * 2
        )

    def test_validate_only(self) -> None:
        alteration = incremental(2, "t", ("retention.ms", SET, "1"))
        decision = alter_configs(image(), [alteration], config=CONFIG, node_id=NODE_ID, validate_only=True)
        assert names(decision.answer) == ["none"]
        assert decision.records == ()

    def test_settings_that_can_not_be_altered_are_listed_in_order(self) -> None:
        alteration = incremental(
            4, "1", ("num.partitions", SET, "1"), ("no.such", SET, "1"), ("node.id", SET, "1")
        )
        (error,) = alter_configs(image(), [alteration], config=CONFIG, node_id=NODE_ID).answer
        assert error is not None
        assert error.message == "Cannot update these configs dynamically: [node.id, num.partitions]"


class TestRulesOfSeveralBrokerSettings:
    """The rules hold for the settings that are in effect after the alteration."""

    PER_ADDRESS, OVERRIDES = "max.connections.per.ip", "max.connections.per.ip.overrides"
    LOWER, HIGHER = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"

    @staticmethod
    def refusal(
        alteration: Alteration,
        own: Mapping[str, str],
        of_all: Mapping[str, str] | None = None,
        *,
        replaces: bool = False,
    ) -> str | None:
        """Return why a broker with these values, its own and those of all brokers, refuses the alteration."""
        config, state = Config(), MetadataImage()
        for name, values in ((str(NODE_ID), own), ("", of_all or {})):
            config.set_dynamic(values, all_brokers=not name)
            for key, value in values.items():
                state.replay(ConfigRecord(BROKER_RESOURCE, name, key, value))
        whole = replacing(state, alteration) if replaces else alteration
        (error,) = alter_configs(state, [whole], config=config, node_id=NODE_ID).answer
        return None if error is None else error.message

    @pytest.mark.parametrize("name", ["1", ""])
    def test_a_removed_value_does_not_count(self, name: str) -> None:
        values = {self.PER_ADDRESS: "0", self.OVERRIDES: "127.0.0.1:5"}
        own, of_all = (values, {}) if name else ({}, values)
        removal = incremental(4, name, (self.OVERRIDES, DELETE, None))
        assert self.refusal(removal, own, of_all) == (
            "max.connections.per.ip can be set to zero only if "
            "max.connections.per.ip.overrides property is set."
        )
        both = incremental(4, name, (self.OVERRIDES, DELETE, None), (self.PER_ADDRESS, DELETE, None))
        assert self.refusal(both, own, of_all) is None

    def test_a_replacement_is_not_refused_for_what_it_removes(self) -> None:
        alteration = Alteration(BROKER_RESOURCE, "1", [ConfigChange(self.HIGHER, "1000")])
        lags = {self.LOWER: "5000", self.HIGHER: "9000"}
        assert self.refusal(alteration, lags, replaces=True) is None

    def test_the_value_of_all_brokers_counts_where_the_brokers_own_is_removed(self) -> None:
        removal = incremental(4, "1", (self.LOWER, DELETE, None))
        refused = self.refusal(removal, {self.LOWER: "0", self.HIGHER: "50"}, {self.LOWER: "100"})
        assert refused == f"conflict broker config setting {self.LOWER} (100) > {self.HIGHER} (50)"

    def test_the_brokers_own_value_counts_before_that_of_all_brokers(self) -> None:
        alteration = incremental(4, "", (self.LOWER, SET, "100"))
        assert self.refusal(alteration, {self.LOWER: "0", self.HIGHER: "50"}) is None
        assert self.refusal(alteration, {self.HIGHER: "50"}) is not None


class TestReplacement:
    def test_configurations_not_named_are_removed(self) -> None:
        state = image()
        alteration = replacing(state, Alteration(TOPIC_RESOURCE, "t", [ConfigChange("retention.ms", "5")]))
        replay(state, alter_configs(state, [alteration], config=CONFIG, node_id=NODE_ID))
        assert state.topic_configs("t") == {"retention.ms": "5"}

    def test_nothing_named_removes_everything(self) -> None:
        state = image()
        replay(
            state,
            alter_configs(
                state, [replacing(state, Alteration(TOPIC_RESOURCE, "t", ()))], config=CONFIG, node_id=1
            ),
        )
        assert state.topic_configs("t") == {}

    def test_a_broker_by_its_number(self) -> None:
        state = MetadataImage()
        alteration = replacing(
            state, Alteration(BROKER_RESOURCE, "1", [ConfigChange("message.max.bytes", "5")])
        )
        replay(state, alter_configs(state, [alteration], config=CONFIG, node_id=NODE_ID))
        assert state.configs(BROKER_RESOURCE, "1") == {"message.max.bytes": "5"}


class TestDescribed:
    def test_the_topics_own_value_comes_first(self) -> None:
        config = load_config(overrides=["log.retention.bytes=20"])
        (entry,) = describe_topic(config, {"retention.bytes": "10"}, {"retention.bytes"})
        assert entry.value == "10"
        assert entry.source is ConfigSource.DYNAMIC_TOPIC
        assert [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms] == [
            ("retention.bytes", "10", ConfigSource.DYNAMIC_TOPIC),
            ("log.retention.bytes", "20", ConfigSource.STATIC_BROKER),
            ("log.retention.bytes", "-1", ConfigSource.DEFAULT),
        ]

    def test_a_value_from_hours_has_no_synonyms_as_in_kafka(self) -> None:
        (entry,) = describe_topic(load_config(), {}, {"retention.ms"})
        assert (entry.value, entry.source, entry.synonyms) == ("604800000", ConfigSource.DEFAULT, ())

    def test_every_topic_setting_but_the_internal_ones_is_listed(self) -> None:
        listed = [entry.name for entry in describe_topic(load_config(), {})]
        assert listed == sorted(listed)
        assert "segment.bytes" in listed
        assert "internal.segment.bytes" not in listed
        assert not any(entry.read_only for entry in describe_topic(load_config(), {}))

    def test_settings_of_topics_only_have_no_synonyms_on_the_broker(self) -> None:
        (entry,) = describe_topic(load_config(), {}, {"remote.storage.enable"})
        assert (entry.value, entry.source, entry.synonyms) == ("false", ConfigSource.DEFAULT, ())
        (entry,) = describe_topic(
            load_config(), {"remote.storage.enable": "false"}, {"remote.storage.enable"}
        )
        assert [synonym.source for synonym in entry.synonyms] == [ConfigSource.DYNAMIC_TOPIC]
        assert not list(describe_broker(load_config(), {"remote.storage.enable"}))

    def test_every_topic_configuration_of_kafka_is_known(self) -> None:
        assert set(BY_TOPIC_NAME) >= KAFKA_TOPIC_CONFIGS - OF_COMPACTION

    @pytest.mark.parametrize(("kind", "prefix"), [(2, ""), (4, "log.cleaner.")])
    def test_lags_of_compaction_must_fit_together(self, kind: int, prefix: str) -> None:
        state = image()
        lower, higher = f"{prefix}min.compaction.lag.ms", f"{prefix}max.compaction.lag.ms"
        config = Config({f"log.cleaner.{limit}.compaction.lag.ms": 7 for limit in ("min", "max")})
        name = "t" if kind == 2 else "1"
        for values, expected in (
            ({lower: "8"}, False),
            ({lower: "8", higher: "8"}, True),
            ({higher: "6"}, False),
        ):
            alteration = incremental(kind, name, *((key, SET, value) for key, value in values.items()))
            (error,) = alter_configs(state, [alteration], config=config, node_id=NODE_ID).answer
            assert (error is None) == expected
        assert error is not None
        assert error.message is not None
        assert error.message.endswith(f"config setting {lower} (7) > {higher} (6)")

    def test_a_broker_shows_what_can_be_altered(self) -> None:
        entries = {entry.name: entry for entry in describe_broker(load_config())}
        assert entries["num.partitions"].read_only
        assert not entries["log.segment.bytes"].read_only
        assert entries["log.retention.ms"].value is None

    def test_secrets_are_hidden(self) -> None:
        config = load_config(overrides=["seqgate.redis.url=redis://:hunter2@127.0.0.1"])
        (entry,) = describe_broker(config, {"seqgate.redis.url"})
        assert entry.is_sensitive
        assert entry.value is None
        assert all(synonym.value is None for synonym in entry.synonyms)

    def test_all_brokers_show_what_was_altered(self) -> None:
        (entry,) = describe_all_brokers({"message.max.bytes": "5"})
        assert (entry.name, entry.value, entry.source) == (
            "message.max.bytes",
            "5",
            ConfigSource.DYNAMIC_DEFAULT_BROKER,
        )
