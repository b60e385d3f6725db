from __future__ import annotations

import pytest

from seqgate.gateway.config import BY_NAME, Config, load_config
from seqgate.gateway.config.groups import GROUP_CONFIGS, GroupConfig
from seqgate.gateway.handlers.admin.configs import alter_configs, replacing
from seqgate.gateway.metadata.configs import (
    Alteration,
    ConfigChange,
    ConfigOperation,
    group_number,
    group_value,
)
from seqgate.gateway.metadata.decision import ApiError
from seqgate.gateway.metadata.image import GROUP_RESOURCE, MetadataImage
from seqgate.gateway.metadata.records import MAX_CONFIG_BYTES
from tests.gateway.metadata.support import NODE_ID, replay

CONFIG = load_config()
LOCK = "share.record.lock.duration.ms"
SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"
TAGS = "streams.rack.aware.assignment.tags"
RESET = "share.auto.offset.reset"


def outcome(image: MetadataImage, *alterations: Alteration, config: Config = CONFIG) -> list[ApiError | None]:
    decision = alter_configs(image, alterations, config=config, node_id=NODE_ID)
    replay(image, decision)
    return decision.answer


@pytest.mark.parametrize("entry", GROUP_CONFIGS, ids=lambda entry: entry.setting.name)
def test_every_row_is_sound(entry: GroupConfig) -> None:
    assert entry.setting.doc.endswith(".")
    assert (entry.setting.default is None) == bool(entry.setting.fallbacks)
    bounds = (entry.at_least, entry.at_most)
    for name in (
        *(fallback.name for fallback in entry.setting.fallbacks),
        *(name for name in bounds if name),
    ):
        assert name in BY_NAME
    value = group_value(CONFIG, {}, entry.setting.name)
    if entry.at_least and entry.at_most:
        assert CONFIG.int(entry.at_least) <= int(value) <= CONFIG.int(entry.at_most)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        (LOCK, "15000", None),
        (LOCK, "60000", None),
        (LOCK, "14999", f"{LOCK} must be greater than or equal to group.share.min.record.lock.duration.ms"),
        (LOCK, "60001", f"{LOCK} must be less than or equal to group.share.max.record.lock.duration.ms"),
        (LOCK, "0", f"Invalid value 0 for configuration {LOCK}: Value must be at least 1"),
        (LOCK, "soon", f"Invalid value soon for configuration {LOCK}: Not a number of type INT"),
        (RESET, "earliest", None),
        (RESET, "by_duration:PT1H", None),
        (
            RESET,
            "by_duration:-PT1H",
            (
                f"Invalid value by_duration:-PT1H for configuration {RESET}: Invalid value "
                f"`by_duration:-PT1H` for configuration {RESET}. The value must be either 'earliest', "
                "'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
            ),
        ),
        ("streams.num.standby.replicas", "2", None),
        (
            "streams.num.standby.replicas",
            "3",
            "streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas",
        ),
        ("streams.initial.rebalance.delay.ms", "0", None),
        ("streams.assignor.name", "sticky", None),
        (
            "streams.assignor.name",
            "spread",
            (
                "streams.assignor.name 'spread' is not a registered task assignor. Registered assignors are: "
                "[sticky]."
            ),
        ),
        ("streams.rack.aware.assignment.tags", "zone, rack", None),
        ("streams.rack.aware.assignment.tags", "", None),
        (
            "streams.rack.aware.assignment.tags",
            "zone,zone",
            "streams.rack.aware.assignment.tags must not contain duplicate tag keys.",
        ),
        (
            "streams.assignment.interval.ms",
            "15001",
            (
                "streams.assignment.interval.ms must be less than or equal to "
                "group.streams.max.assignment.interval.ms"
            ),
        ),
        (
            "streams.session.timeout.ms",
            "1",
            (
                "streams.session.timeout.ms must be greater than or equal to "
                "group.streams.min.session.timeout.ms"
            ),
        ),
        (
            "share.isolation",
            "1",
            "Unknown group config name: share.isolation (the nearest valid name is share.isolation.level)",
        ),
    ],
)
def test_values(name: str, value: str, complaint: str | None) -> None:
    (error,) = outcome(MetadataImage(), Alteration(GROUP_RESOURCE, "g", [ConfigChange(name, value)]))
    if complaint is None:
        assert error is None
    else:
        assert error is not None
        assert error.error_code.name == "invalid_config"
        assert (error.message or "").startswith(complaint)


def test_a_session_is_longer_than_the_time_between_heartbeats() -> None:
    config = load_config(overrides=["group.consumer.min.session.timeout.ms=1"])
    wrong = Alteration(GROUP_RESOURCE, "g", [ConfigChange(SESSION, "9000"), ConfigChange(HEARTBEAT, "9000")])
    (error,) = outcome(MetadataImage(), wrong, config=config)
    assert error is not None
    assert error.message == f"{SESSION} must be greater than {HEARTBEAT}"


@pytest.mark.parametrize("group_id", ["", "g" * 1025])
def test_names_that_are_refused(group_id: str) -> None:
    (error,) = outcome(MetadataImage(), Alteration(GROUP_RESOURCE, group_id, [ConfigChange(LOCK, "20000")]))
    assert error is not None
    assert error.error_code.name == "invalid_request"


def test_no_more_groups_than_allowed_have_configurations() -> None:
    config = load_config(overrides=["seqgate.group.configs.max=2"])
    image = MetadataImage()
    change = [ConfigChange(LOCK, "20000")]
    three = [Alteration(GROUP_RESOURCE, group_id, change) for group_id in "abc"]
    errors = outcome(image, *three, config=config)
    assert [error.error_code.name if error else None for error in errors] == [None, None, "policy_violation"]
    assert sorted(image.configured(GROUP_RESOURCE)) == ["a", "b"]
    other = Alteration(GROUP_RESOURCE, "a", [ConfigChange(SESSION, "50000")])
    assert outcome(image, other, config=config) == [None]
    gone = replacing(image, Alteration(GROUP_RESOURCE, "a", []))
    assert outcome(image, gone, config=config) == [None]
    assert outcome(image, three[2], config=config) == [None]
    assert sorted(image.configured(GROUP_RESOURCE)) == ["b", "c"]


def test_an_unset_value_is_that_of_all_groups() -> None:
    config = load_config(overrides=[f"group.{LOCK}=20000"])
    assert group_number(config, {}, LOCK) == 20_000
    assert group_number(config, {LOCK: "40000"}, LOCK) == 40_000


def test_a_stored_value_outside_the_present_bounds_is_moved_into_them() -> None:
    assert group_number(CONFIG, {LOCK: "1"}, LOCK) == 15_000
    assert group_number(CONFIG, {LOCK: "99999999"}, LOCK) == 60_000
    assert group_number(CONFIG, {LOCK: "what"}, LOCK) == 30_000


def test_a_list_grows_up_to_the_longest_text_of_an_answer() -> None:
    image = MetadataImage()
    first, second = ("a" * (MAX_CONFIG_BYTES // 2), "b" * (MAX_CONFIG_BYTES // 2))

    def append(tag: str) -> ApiError | None:
        change = ConfigChange(TAGS, tag, ConfigOperation.APPEND)
        (error,) = outcome(image, Alteration(GROUP_RESOURCE, "g", [change]))
        return error

    assert append(first) is append(second) is None
    error = append("c")
    assert error is not None
    assert error.message == f"The value of {TAGS} has 32769 bytes; at most 32767 are allowed."
    assert image.configs(GROUP_RESOURCE, "g") == {TAGS: f"{first},{second}"}


def test_a_value_is_deleted() -> None:
    image = MetadataImage()
    assert outcome(image, Alteration(GROUP_RESOURCE, "g", [ConfigChange(LOCK, "20000")])) == [None]
    gone = Alteration(GROUP_RESOURCE, "g", [ConfigChange(LOCK, None, ConfigOperation.DELETE)])
    assert outcome(image, gone) == [None]
    assert image.configs(GROUP_RESOURCE, "g") == {}
    assert not image.configured(GROUP_RESOURCE)
