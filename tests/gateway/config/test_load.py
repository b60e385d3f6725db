from __future__ import annotations

from pathlib import Path

import pytest

from seqgate.core import PURE
from seqgate.gateway.config import SETTINGS, Config, ConfigError, ConfigSource, Listener, load_config
from seqgate.gateway.config.load import FILE_VARIABLE


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "seqgate.toml"
    file.write_text(text, encoding="utf-8")
    return file


def refusal(**arguments: object) -> str:
    with pytest.raises(ConfigError) as refused:
        load_config(**arguments)  # type: ignore[arg-type]
    return str(refused.value)


class TestPrecedence:
    def test_without_any_value_the_default_holds(self) -> None:
        config = load_config()
        assert config.int("log.segment.bytes") == 1073741824
        assert next(config.entries("log.segment.bytes")).source is ConfigSource.DEFAULT

    def test_flag_before_environment_before_file(self, tmp_path: Path) -> None:
        file = write(tmp_path, '"num.partitions" = 2\n"node.id" = 2\n"broker.rack" = "file"\n')
        environment = {"SEQGATE_NUM_PARTITIONS": "3", "SEQGATE_NODE_ID": "3"}
        config = load_config(file, environment, ["num.partitions=4"])
        assert config.int("num.partitions") == 4
        assert config.int("node.id") == 3
        assert config.str("broker.rack") == "file"
        assert next(config.entries("broker.rack")).source is ConfigSource.STATIC_BROKER

    @pytest.mark.parametrize("origin", ["file", "environment", "flag"])
    def test_what_is_set_at_the_start_is_static(self, tmp_path: Path, origin: str) -> None:
        address = "PLAINTEXT://example.org:9092"
        if origin == "file":
            config = load_config(write(tmp_path, f'"advertised.listeners" = ["{address}"]\n'))
        elif origin == "environment":
            config = load_config(environment={"SEQGATE_ADVERTISED_LISTENERS": address})
        else:
            config = load_config(overrides=[f"advertised.listeners={address}"])
        (entry,) = config.entries("advertised.listeners")
        assert (entry.value, entry.source) == (address, ConfigSource.STATIC_BROKER)

    def test_the_later_flag_counts(self) -> None:
        assert load_config(overrides=["node.id=1", "node.id=7"]).int("node.id") == 7


class TestFile:
    def test_nested_tables_and_quoted_names_are_the_same(self, tmp_path: Path) -> None:
        nested = write(tmp_path, "[log]\nsegment.bytes = 2097152\nretention.ms = 5\n")
        assert load_config(nested).int("log.segment.bytes") == 2097152
        quoted = write(tmp_path, '"log.segment.bytes" = 2097152\n')
        assert load_config(quoted).int("log.segment.bytes") == 2097152

    def test_toml_types_become_values(self, tmp_path: Path) -> None:
        file = write(
            tmp_path,
            '"auto.create.topics.enable" = false\n'
            'listeners = ["A://127.0.0.1:1", "B://[::1]:2"]\n'
            'listener.security.protocol.map = "A:SSL,B:PLAINTEXT"\n'
            '"seqgate.producer.id.prefetch.ratio" = 0.5\n',
        )
        config = load_config(file)
        assert config.bool("auto.create.topics.enable") is False
        assert config.listeners == (Listener("A", "127.0.0.1", 1), Listener("B", "::1", 2))
        assert config.double("seqgate.producer.id.prefetch.ratio") == 0.5

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        assert "nowhere.toml" in refusal(file=tmp_path / "nowhere.toml")

    def test_broken_toml_is_explained_in_a_sentence(self, tmp_path: Path) -> None:
        file = write(tmp_path, "max.connections = 1\nmax.connections.per.ip = 2\n")
        assert "a name with dots can be quoted" in refusal(file=file)


class TestEnvironment:
    def test_the_variable_of_a_seqgate_setting_has_one_prefix(self) -> None:
        config = load_config(environment={"SEQGATE_REDIS_PREFIX": "x:"})
        assert config.str("seqgate.redis.prefix") == "x:"

    def test_variables_of_other_programs_are_ignored(self) -> None:
        others = {"PATH": "/bin", "SEQGATE_SPARK_JARS": "a.jar", "SEQGATE_TEST_PORT": "1", PURE: "1"}
        config = load_config(environment=others)
        given = {entry.source for setting in SETTINGS for entry in config.entries(setting.name)}
        assert given == {ConfigSource.DEFAULT}

    def test_a_variable_can_name_the_file(self, tmp_path: Path) -> None:
        file = write(tmp_path, '"node.id" = 5\n')
        assert load_config(environment={FILE_VARIABLE: str(file)}).int("node.id") == 5
        other = tmp_path / "other.toml"
        other.write_text('"node.id" = 6\n', encoding="utf-8")
        assert load_config(other, {FILE_VARIABLE: str(file)}).int("node.id") == 6

    def test_an_unknown_variable_suggests_the_nearest_name(self) -> None:
        text = refusal(environment={"SEQGATE_LOG_SEGMNT_BYTES": "1"})
        assert "SEQGATE_LOG_SEGMNT_BYTES" in text
        assert "SEQGATE_LOG_SEGMENT_BYTES" in text


class TestRefusals:
    def test_an_unknown_name_suggests_the_nearest_name(self) -> None:
        text = refusal(overrides=["log.segmnt.bytes=1"])
        assert text == (
            "Unknown setting log.segmnt.bytes (given as a flag); the nearest valid name is log.segment.bytes."
        )

    def test_a_name_without_a_similar_name_gets_no_suggestion(self) -> None:
        assert "nearest" not in refusal(overrides=["zzzzzzzz=1"])

    @pytest.mark.parametrize(
        ("override", "sentence"),
        [
            (
                "node.id=x",
                "Setting node.id can't be 'x' (given as a flag); allowed: a whole number, at least 0.",
            ),
            (
                "default.replication.factor=3",
                "Setting default.replication.factor can't be '3' (given as a flag); allowed: only 1.",
            ),
            (
                "listeners=A://h:99999",
                (
                    "Setting listeners can't be 'A://h:99999' (given as a flag): port 99999 is not between 0 and "
                    "65535."
                ),
            ),
        ],
    )
    def test_a_reason_is_said_once(self, override: str, sentence: str) -> None:
        assert refusal(overrides=[override]) == sentence

    def test_a_value_out_of_range_is_refused_with_the_range(self) -> None:
        text = refusal(overrides=["log.segment.bytes=5"])
        assert "log.segment.bytes" in text
        assert "'5'" in text
        assert "at least 1048576" in text

    @pytest.mark.parametrize(
        "override",
        [
            "node.id=x",
            "node.id=99999999999",
            "auto.create.topics.enable=yes",
            "default.replication.factor=3",
            "log.message.timestamp.type=Now",
            "log.cleanup.policy=compress",
            "compression.type=zip",
            "compression.gzip.level=0",
            "compression.lz4.level=18",
            "compression.zstd.level=23",
            "seqgate.producer.retained.batches=4",
            "seqgate.producer.id.store=etcd",
            "seqgate.redis.url=http://x",
            "log.dirs=a,b",
            "log.dirs=",
            "listeners=",
            "listeners=SASL://127.0.0.1:1",
            "listener.security.protocol.map=PLAINTEXT:SASL",
            "listeners=A://h:1,A://h:2",
            "listeners=A://h:99999",
            "advertised.listeners=OTHER://h:1",
            "advertised.listeners=PLAINTEXT://0.0.0.0:1",
            "log.retention.ms=0",
            "log.message.deduplication.expiration.ms=0",
            "log.message.deduplication.name.header=dedup.sequence",
            "max.connections.per.ip=0",
            "log.cleaner.dedupe.buffer.size=2097151 log.cleaner.threads=2",
            "group.consumer.heartbeat.interval.ms=60000",
            "group.consumer.session.timeout.ms=1000",
            "group.consumer.min.session.timeout.ms=70000",
            "group.share.heartbeat.interval.ms=46000",
            "group.share.max.session.timeout.ms=44999",
            "group.share.max.size=2001",
            "group.share.record.lock.duration.ms=600000",
            "group.share.delivery.count.limit=4 group.share.min.delivery.count.limit=5",
            "group.share.partition.max.record.locks=4001",
            "group.streams.min.heartbeat.interval.ms=5001",
            "group.streams.heartbeat.interval.ms=45000 group.streams.max.heartbeat.interval.ms=45000",
            "group.streams.assignment.interval.ms=15001",
            "group.streams.num.standby.replicas=3",
            "no-equals-sign",
        ],
    )
    def test_bad_values_stop_the_start(self, override: str) -> None:
        assert override.partition("=")[0] in refusal(overrides=override.split())

    def test_a_secret_is_not_shown(self) -> None:
        assert "hunter2" not in refusal(overrides=["seqgate.redis.url=http://:hunter2@x"])


class TestListeners:
    def test_a_bare_address_is_plaintext(self) -> None:
        assert load_config(overrides=["listeners=127.0.0.1:0"]).listeners == (
            Listener("PLAINTEXT", "127.0.0.1", 0),
        )

    def test_an_empty_host_means_every_interface(self) -> None:
        assert load_config(overrides=["listeners=PLAINTEXT://:9092"]).listeners[0].host == ""

    def test_advertised_addresses_belong_to_listeners(self) -> None:
        config = load_config(overrides=["advertised.listeners=plaintext://gateway.example:9092"])
        assert config.advertised_listeners == (Listener("PLAINTEXT", "gateway.example", 9092),)


class TestValues:
    def test_unset_milliseconds_fall_back_to_hours(self) -> None:
        assert load_config().int("log.retention.ms") == 168 * 3600000
        assert load_config(overrides=["log.retention.hours=2"]).int("log.retention.ms") == 7200000
        minutes = load_config(overrides=["log.retention.hours=2", "log.retention.minutes=1"])
        assert minutes.int("log.retention.ms") == 60000
        assert load_config(overrides=["log.retention.hours=-1"]).int("log.retention.ms") == -1

    def test_an_unset_setting_without_fallback_has_its_unset_value(self) -> None:
        assert load_config().int("log.flush.interval.ms") == 2**63 - 1
        assert load_config()["broker.rack"] is None
        assert load_config().optional_str("broker.rack") is None

    def test_a_getter_of_the_wrong_type_is_refused(self) -> None:
        with pytest.raises(TypeError):
            load_config().bool("node.id")

    def test_a_topic_has_its_own_value_or_the_brokers(self) -> None:
        config = load_config(overrides=["log.segment.bytes=2097152"])
        assert config.topic_value("segment.bytes", {}) == 2097152
        assert config.topic_value("segment.bytes", {"segment.bytes": "3145728"}) == 3145728
        assert config.topic_value("segment.bytes", {"segment.bytes": "nonsense"}) == 2097152


class TestDynamicValues:
    def test_this_broker_before_all_brokers_before_static(self) -> None:
        config = load_config(overrides=["message.max.bytes=1"])
        config.set_dynamic({"message.max.bytes": "2"}, all_brokers=True)
        assert config.int("message.max.bytes") == 2
        config.set_dynamic({"message.max.bytes": "3"}, all_brokers=False)
        assert config.int("message.max.bytes") == 3
        assert [entry.source for entry in config.entries("message.max.bytes")] == [
            ConfigSource.DYNAMIC_BROKER,
            ConfigSource.DYNAMIC_DEFAULT_BROKER,
            ConfigSource.STATIC_BROKER,
            ConfigSource.DEFAULT,
        ]
        config.set_dynamic({}, all_brokers=False)
        config.set_dynamic({}, all_brokers=True)
        assert config.int("message.max.bytes") == 1

    def test_stored_values_that_can_not_be_altered_are_ignored(self) -> None:
        config = Config()
        config.set_dynamic({"node.id": "9", "unknown": "1", "message.max.bytes": "x"}, all_brokers=True)
        assert config.int("node.id") == 1
        assert config.int("message.max.bytes") == 1048588
