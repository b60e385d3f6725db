from __future__ import annotations

import pytest

from docs.pages import configuration_page
from seqgate.gateway.config import (
    BY_NAME,
    BY_TOPIC_NAME,
    SETTINGS,
    InvalidValueError,
    Setting,
    SettingType,
    render,
)
from seqgate.gateway.config.network import parse_overrides
from seqgate.gateway.config.table import BY_ENVIRONMENT_NAME, TOPIC_ONLY_SETTINGS, nearest


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(SETTINGS)
    assert len(BY_ENVIRONMENT_NAME) == len(SETTINGS)
    rows = (*SETTINGS, *TOPIC_ONLY_SETTINGS)
    assert len(BY_TOPIC_NAME) == len([setting for setting in rows if setting.topic_name])


@pytest.mark.parametrize("setting", [*SETTINGS, *TOPIC_ONLY_SETTINGS], ids=lambda setting: setting.name)
def test_every_row_is_sound(setting: Setting) -> None:
    assert setting.doc.endswith(".")
    text = render(setting.default)
    if text is not None:
        assert setting.parse(text) == setting.default
    for fallback in setting.fallbacks:
        assert BY_NAME[fallback.name].type in (SettingType.INT, SettingType.LONG)
    if setting.topic_name is not None:
        assert setting.dynamic


def test_defaults_that_differ_from_kafka_are_these_only() -> None:
    """Compares with the defaults that Kafka 4.4.0 reports in DescribeConfigs."""
    kafka = {
        "log.segment.bytes": "1073741824",
        "log.index.interval.bytes": "4096",
        "log.index.size.max.bytes": "10485760",
        "message.max.bytes": "1048588",
        "max.decompressed.message.bytes": "2147483639",
        "log.remote.copy.lag.bytes": "-1",
        "log.remote.copy.lag.ms": "0",
        "log.message.timestamp.type": "CreateTime",
        "log.message.timestamp.before.max.ms": "9223372036854775807",
        "log.message.timestamp.after.max.ms": "3600000",
        "log.flush.interval.messages": "9223372036854775807",
        "log.retention.bytes": "-1",
        "log.retention.hours": "168",
        "log.roll.hours": "168",
        "log.retention.check.interval.ms": "300000",
        "log.segment.delete.delay.ms": "60000",
        "log.cleanup.policy": "delete",
        "log.flush.offset.checkpoint.interval.ms": "60000",
        "compression.type": "producer",
        "min.insync.replicas": "1",
        "num.partitions": "1",
        "default.replication.factor": "1",
        "auto.create.topics.enable": "true",
        "delete.topic.enable": "true",
        "socket.request.max.bytes": "104857600",
        "socket.send.buffer.bytes": "102400",
        "socket.receive.buffer.bytes": "102400",
        "socket.listen.backlog.size": "50",
        "max.connections": "2147483647",
        "max.connections.per.ip": "2147483647",
        "connections.max.idle.ms": "600000",
        "queued.max.request.bytes": "-1",
        "max.incremental.fetch.session.cache.slots": "1000",
        "fetch.max.bytes": "57671680",
        "producer.id.expiration.ms": "86400000",
    }
    different = {name for name, value in kafka.items() if render(BY_NAME[name].default) != value}
    assert different == {
        "log.flush.interval.messages",
        "queued.max.request.bytes",
        "socket.send.buffer.bytes",
        "socket.receive.buffer.bytes",
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("num.partitions", "0"),
        ("num.partitions", "1.5"),
        ("seqgate.producer.id.prefetch.ratio", "1.1"),
        ("seqgate.producer.id.prefetch.ratio", "much"),
        ("log.retention.ms", str(2**63)),
        ("log.message.timestamp.type", "createtime"),
        ("log.cleanup.policy", "delete,compress"),
        ("log.cleanup.policy", "delete,"),
        ("num.partitions", "1_0"),
        ("num.partitions", "\u0663"),
        ("num.partitions", "9" * 40),
        ("seqgate.producer.id.prefetch.ratio", "nan"),
        ("seqgate.producer.id.prefetch.ratio", "0.1_0"),
        ("max.connections.per.ip.overrides", "127.0.0.1"),
        ("max.connections.per.ip.overrides", "localhost:5"),
        ("max.connections.per.ip.overrides", "127.0.0.1:-5"),
        ("max.connections.per.ip.overrides", f"127.0.0.1:{2**31}"),
        ("offsets.topic.num.partitions", "10001"),
        ("transaction.state.log.num.partitions", "10001"),
        ("share.coordinator.state.topic.num.partitions", "10001"),
    ],
)
def test_values_that_are_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidValueError):
        BY_NAME[name].parse(text)


def test_limits_of_addresses() -> None:
    BY_NAME["max.connections.per.ip.overrides"].parse("127.0.0.1:5, [::1]:0,::2:7")
    assert parse_overrides("127.0.0.1:5, [::1]:0,::2:7") == {"127.0.0.1": 5, "::1": 0, "::2": 7}


def test_numbers_parse_as_in_java() -> None:
    assert BY_NAME["num.partitions"].parse(" +5 ") == 5
    assert BY_NAME["seqgate.producer.id.prefetch.ratio"].parse(".5") == 0.5
    assert BY_NAME["seqgate.producer.id.prefetch.ratio"].parse("5e-1") == 0.5


def test_an_empty_cleanup_policy_is_accepted() -> None:
    assert BY_NAME["log.cleanup.policy"].parse("") == ()


def test_values_render_as_text() -> None:
    assert render(None) is None
    assert render(True) == "true"
    assert render(("a", "b")) == "a,b"
    assert render(0.9) == "0.9"


def test_nearest_returns_the_most_similar_name() -> None:
    assert nearest("retention.m", BY_TOPIC_NAME) == "retention.ms"
    assert nearest("????", BY_TOPIC_NAME) is None


def test_the_page_names_every_setting_once() -> None:
    page = configuration_page()
    for setting in SETTINGS:
        assert page.count(f"### `{setting.name}`") == (0 if setting.internal else 1)
