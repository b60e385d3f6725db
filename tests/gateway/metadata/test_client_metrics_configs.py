from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.config import Config, load_config
from seqgate.gateway.handlers.admin.configs import alter_configs, replacing
from seqgate.gateway.metadata.configs import MAX_NAME_BYTES, Alteration, ConfigChange, ConfigOperation
from seqgate.gateway.metadata.decision import ApiError
from seqgate.gateway.metadata.image import CLIENT_METRICS_RESOURCE, MetadataImage, records_of
from seqgate.gateway.metadata.records import MAX_CONFIG_BYTES
from tests.gateway.metadata.support import NODE_ID, replay

CONFIG = load_config()


def outcome(image: MetadataImage, *alterations: Alteration, config: Config = CONFIG) -> list[ApiError | None]:
    decision = alter_configs(image, alterations, config=config, node_id=NODE_ID)
    replay(image, decision)
    return decision.answer


def setting(name: str, **values: str) -> Alteration:
    """Return the alteration that sets these values; `_` stands for `.` in a name."""
    changes = [ConfigChange(key.replace("_", "."), value) for key, value in values.items()]
    return Alteration(CLIENT_METRICS_RESOURCE, name, changes)


@pytest.mark.parametrize(
    ("values", "code", "message"),
    [
        ({"interval_ms": "100"}, None, None),
        ({"interval_ms": "3600000"}, None, None),
        ({"interval_ms": " 200 "}, None, None),
        (
            {"interval_ms": "99"},
            42,
            "Invalid value 99 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        ({"interval_ms": "3600001"}, 42, None),
        (
            {"interval_ms": "soon"},
            40,
            "Invalid value soon for configuration interval.ms: Not a number of type INT",
        ),
        ({"metrics": "*"}, None, None),
        ({"metrics": ""}, None, None),
        ({"metrics": "org.apache.kafka.producer., org.apache.kafka.consumer."}, None, None),
        ({"metrics": "a,,b"}, 40, "Configuration 'metrics' values must not be empty."),
        ({"match": "client_id=a, client_software_version=4.*"}, None, None),
        ({"match": "client_id"}, 40, None),
        ({"match": "client_id=["}, 40, None),
        ({"nope": "1"}, 42, "Unknown client metrics configuration: nope"),
        (
            {"interva_ms": "1"},
            42,
            "Unknown client metrics configuration: interva.ms (the nearest valid name is interval.ms)",
        ),
        ({"nope": "1", "interval_ms": "x"}, 42, None),
        ({"interval_ms": "1", "match": "x"}, 42, None),
        (
            {"metrics": "x" * (MAX_CONFIG_BYTES + 1)},
            40,
            "The value of metrics has 32768 bytes; at most 32767 are allowed.",
        ),
    ],
)
def test_values_are_checked_as_kafka_checks_them(
    values: dict[str, str], code: int | None, message: str | None
) -> None:
    image = MetadataImage()
    (error,) = outcome(image, setting("s", **values))
    assert (error.error_code if error else None) == code
    if message is not None:
        assert error is not None
        assert error.message == message
    assert list(image.configured(CLIENT_METRICS_RESOURCE)) == ([] if code else ["s"])


@pytest.mark.parametrize(
    ("name", "code"), [("", 42), ("a b", None), ("ü", None), ("x" * MAX_NAME_BYTES, None), ("ü" * 600, 42)]
)
def test_a_name_is_any_text_that_is_not_too_long(name: str, code: int | None) -> None:
    (error,) = outcome(MetadataImage(), setting(name, interval_ms="1000"))
    assert (error.error_code if error else None) == code


@pytest.mark.parametrize("operation", [ConfigOperation.APPEND, ConfigOperation.SUBTRACT])
def test_lists_are_set_whole(operation: ConfigOperation) -> None:
    change = ConfigChange("metrics", "a", operation)
    (error,) = outcome(MetadataImage(), Alteration(CLIENT_METRICS_RESOURCE, "s", [change]))
    assert error == ApiError(
        ErrorCode.invalid_config, f"Can't {operation.name} to key metrics because its type is not LIST."
    )


def test_a_subscription_without_values_is_gone() -> None:
    image = MetadataImage()
    assert outcome(image, setting("s", interval_ms="1000", metrics="*")) == [None]
    delete = [
        ConfigChange(name, None, ConfigOperation.DELETE) for name in ("interval.ms", "metrics", "match")
    ]
    assert outcome(image, Alteration(CLIENT_METRICS_RESOURCE, "s", delete)) == [None]
    assert not image.configured(CLIENT_METRICS_RESOURCE)


def test_a_replaced_subscription_keeps_only_what_is_named() -> None:
    image = MetadataImage()
    outcome(image, setting("s", interval_ms="1000", metrics="*"))
    replaced = replacing(image, Alteration(CLIENT_METRICS_RESOURCE, "s", [ConfigChange("metrics", "a")]))
    assert outcome(image, replaced) == [None]
    assert image.configs(CLIENT_METRICS_RESOURCE, "s") == {"metrics": "a"}


def test_the_number_of_subscriptions_is_limited() -> None:
    config = load_config(overrides=["seqgate.telemetry.subscriptions.max=2"])
    image = MetadataImage()
    errors = outcome(image, *(setting(name, metrics="*") for name in "abc"), config=config)
    assert [error.error_code if error else None for error in errors] == [
        None,
        None,
        ErrorCode.policy_violation,
    ]
    assert outcome(image, setting("a", metrics="x"), config=config) == [None]
    gone = replacing(image, Alteration(CLIENT_METRICS_RESOURCE, "a", []))
    assert outcome(image, gone, config=config) == [None]
    assert outcome(image, setting("c", metrics="x"), config=config) == [None]


def test_a_snapshot_of_the_metadata_has_the_subscriptions() -> None:
    image, copy = MetadataImage(), MetadataImage()
    outcome(image, setting("s", interval_ms="1000", match="client_id=a"))
    for record in records_of(image):
        copy.replay(record)
    assert copy.configs(CLIENT_METRICS_RESOURCE, "s") == {"interval.ms": "1000", "match": "client_id=a"}
