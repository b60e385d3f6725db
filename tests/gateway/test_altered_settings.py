"""Every row of the settings table: an alterable setting takes effect at once, any other is refused.

A new dynamic setting passes if its users read it whenever they need it, keep it by `Config.follow`, wait by
an `Interval`, or take it as a topic's policy. The walk over the table finds a setting that is read only once,
at the start.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.config import (
    BY_NAME,
    BY_TOPIC_NAME,
    SETTINGS,
    Config,
    InvalidValueError,
    Setting,
    SettingType,
    SettingValue,
    render,
)
from seqgate.gateway.config.groups import BY_GROUP_NAME
from seqgate.gateway.gateway import Gateway
from seqgate.gateway.runtime.loop.clock import Interval
from seqgate.gateway.runtime.topics.topic_lifecycle import TopicPolicy, topic_policy
from seqgate.gateway.runtime.upkeep.compaction import Compaction
from seqgate.gateway.runtime.upkeep.disk_room import DiskRoom
from seqgate.log import PartitionLog
from tests.gateway.handlers.requests import alter, create
from tests.gateway.handlers.support import FixedClock, Node

TOPIC, BROKER = 2, 4
ALTERABLE = [setting for setting in SETTINGS if setting.dynamic]
SOURCES = Path(__file__).parents[2] / "gateway"


READ_ANEW = (
    topic_policy.__code__,
    Interval.passed.__code__,
    Compaction._run.__code__,
    DiskRoom.check_free_space.__code__,
)
"""The code objects of functions that read settings at the start and read them again later, after each change
or at intervals.
"""


class _Recorded(dict[str, SettingValue | None]):
    """The values of a config; reports each one that is read."""

    def __init__(self, values: dict[str, SettingValue | None], looked_up: Callable[[str], None]) -> None:
        super().__init__(values)
        self._looked_up = looked_up

    def __getitem__(self, name: str) -> SettingValue | None:
        self._looked_up(name)
        return super().__getitem__(name)


class RecordingConfig(Config):
    """A config that records settings whose value was read outside of `follow`, so that an alteration may not
    reach the reader.

    `kept` has the file of the reading code by the name of the setting. Code of READ_ANEW reads again, and is
    left out.
    """

    def __init__(self, static: dict[str, SettingValue]) -> None:
        self.following = 0
        self.kept: dict[str, str] = {}
        super().__init__(static)

    def _resolve(self) -> None:
        super()._resolve()
        self._values = _Recorded(self._values, self._looked_up)

    def follow(self, apply: Callable[[], None]) -> None:
        def counted() -> None:
            self.following += 1
            apply()
            self.following -= 1

        super().follow(counted)

    def _looked_up(self, name: str) -> None:
        frame = sys._getframe(2)
        while frame.f_code.co_filename.endswith("config/config.py") and frame.f_back:
            frame = frame.f_back
        reader = frame.f_code.co_filename
        while not self.following and frame is not None:
            if frame.f_code in READ_ANEW:
                return
            frame = frame.f_back  # type: ignore[assignment]
        if not self.following:
            self.kept[name] = reader


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    static: dict[str, SettingValue] = {"log.dirs": str(tmp_path), "listeners": ("PLAINTEXT://127.0.0.1:0",)}
    gateway = Gateway(RecordingConfig(static))
    await gateway.start()
    yield gateway
    await gateway.stop()


def another(setting: Setting) -> str | None:
    """Return a text that the setting accepts and that is not its default; None if there is none."""
    default = setting.default
    candidates: list[Any] = [*setting.choices, "1", "2", setting.minimum]
    if setting.type is SettingType.BOOLEAN:
        candidates = [not default]
    elif isinstance(default, int | float):
        candidates = [default + 1, default - 1, default / 2]
    for candidate in candidates:
        try:
            value = setting.parse(render(candidate) or "")
        except InvalidValueError:
            continue
        if value != default:
            return render(value)
    return None


SEEN: dict[str, Callable[[Gateway], object]] = {
    "seqgate.connection.response.backlog.bytes": lambda gateway: gateway.server.limits.response_backlog_bytes,
    "seqgate.connection.max.in.flight.requests": lambda gateway: gateway.server.limits.in_flight_requests,
    "seqgate.log.max.open.files": lambda gateway: gateway.machine.storage.descriptors.limit,
    "seqgate.flush.inline.max.ms": lambda gateway: gateway.services.partitions.flusher.inline_limit_s * 1000,
    "seqgate.producer.max.per.partition": lambda gateway: gateway.producer_limit.max_per_partition,
    "seqgate.producer.max": lambda gateway: gateway.producer_limit.max_in_all,
    "seqgate.producer.min.idle.ms": lambda gateway: gateway.producer_limit.min_idle_ms,
    "seqgate.producer.id.block.size": lambda gateway: gateway.services.coordinators.producer_ids.block_size,
    "seqgate.producer.id.prefetch.ratio": lambda gateway: (
        gateway.services.coordinators.producer_ids.prefetch_at
    ),
    "seqgate.transactional.id.max": lambda gateway: (
        gateway.services.coordinators.transactions.limits.max_transactional_ids
    ),
    "seqgate.transaction.partitions.max": lambda gateway: (
        gateway.services.coordinators.transactions.limits.max_partitions
    ),
    "transaction.partition.verification.enable": lambda gateway: (
        gateway.services.coordinators.transactions.verifies
    ),
}
"""The functions that return the value that a part of the gateway uses, by the name of the setting."""


ALWAYS_FALSE = "remote.storage.enable"
"""The setting whose valid value true is refused, because there is no tiered storage."""


GROUP_NAMES = {
    fallback.name: name for name, entry in BY_GROUP_NAME.items() for fallback in entry.setting.fallbacks
}
"""The configuration of a group that reads a setting for all groups, by the name of the setting."""
BOUNDS = {bound for entry in BY_GROUP_NAME.values() for bound in (entry.at_least, entry.at_most)}
"""The settings that bound configurations of groups, which are read when a configuration is altered."""


async def test_nothing_that_can_be_altered_is_kept_from_the_start(gateway: Gateway) -> None:
    config = gateway.config
    assert isinstance(config, RecordingConfig)
    kept = {name: reader for name, reader in config.kept.items() if BY_NAME[name].dynamic}
    assert kept == {}, (
        "read once at the start: read it when it is needed, or use Config.follow or an Interval"
    )


async def test_an_alteration_is_in_effect_when_it_is_answered(gateway: Gateway) -> None:
    node = Node(gateway.services, FixedClock())
    for setting in ALTERABLE:
        name = setting.name
        before = gateway.config[name]
        text = another(setting) or render(before) or ""
        assert (await alter(node, BROKER, "1", {name: text})).error_message is None, name
        assert gateway.config[name] == setting.parse(text), name
        assert name not in SEEN or SEEN[name](gateway) == setting.parse(text), name
        assert (await alter(node, BROKER, "1", {name: None})).error_message is None, name
        assert gateway.config[name] == before, name
        assert name not in SEEN or SEEN[name](gateway) == before, name


async def test_a_partition_that_is_open_goes_by_what_its_topic_and_the_gateway_are_altered_to(
    gateway: Gateway,
) -> None:
    node = Node(gateway.services, FixedClock())
    await create(node, "t")
    partition = gateway.services.partitions.registry.get("t", 0)
    assert partition is not None
    resources = [(TOPIC, "t", BY_TOPIC_NAME), (BROKER, "1", {row.name: row for row in ALTERABLE})]
    for kind, name, table in resources:
        for key, setting in table.items():
            text = another(setting)
            if text is None or key == ALWAYS_FALSE:
                continue
            for value in (text, None):
                assert (await alter(node, kind, name, {key: value})).error_message is None, key
                own = {key: value} if value is not None and kind == TOPIC else {}
                policy = topic_policy(gateway.config, own)
                followed = TopicPolicy(
                    partition.log.config, partition.flush_messages, partition.flush_ms, partition.compression
                )
                assert followed == policy, key


async def test_a_job_runs_as_often_as_its_interval_says_from_then_on(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(gateway.services, FixedClock())
    await create(node, "t")
    assert gateway.services.partitions.registry.get("t", 0) is not None
    ran = asyncio.Event()
    monkeypatch.setattr(PartitionLog, "expire_producers", lambda *_: ran.set())
    await alter(node, BROKER, "1", {"producer.id.expiration.check.interval.ms": "1"})
    await asyncio.wait_for(ran.wait(), 60)


async def test_what_can_not_be_altered_is_refused_as_in_kafka(gateway: Gateway) -> None:
    node = Node(gateway.services, FixedClock())
    for setting in SETTINGS:
        if setting.dynamic:
            continue
        for broker in ("1", ""):
            result = await alter(node, BROKER, broker, {setting.name: another(setting) or ""})
            why = (
                "These security configs can be dynamically updated only per-listener using the listener "
                "prefix"
                if setting.dynamic_on_listener
                else "Cannot update these configs dynamically"
            )
            assert (result.error_code, result.error_message) == (
                ErrorCode.invalid_request,
                f"{why}: [{setting.name}]",
            )


def test_something_reads_every_setting_that_can_be_altered_and_has_an_effect() -> None:
    files = [path for path in SOURCES.rglob("*.py") if SOURCES / "config" not in path.parents]
    texts = [path.read_text() for path in files]
    for setting in ALTERABLE:
        if another(setting) is None or setting.name in BOUNDS:
            continue
        all_names = (setting.name, setting.topic_name, GROUP_NAMES.get(setting.name))
        names = [f'"{name}"' for name in all_names if name]
        is_read = any(name in text for name in names for text in texts)
        assert is_read != setting.without_effect, setting.name
