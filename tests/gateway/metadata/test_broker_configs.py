"""Which settings of a broker can be altered, with a listener's prefix and without, and which are kept."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.config import BY_NAME, Config, load_config, render
from seqgate.gateway.config.kept_brokers import (
    BY_KEPT_NAME,
    KEPT_SETTINGS,
    MAX_KEPT_NAMES,
    READ_ONLY,
    READ_ONLY_LISTS,
    THREAD_COUNTS,
)
from seqgate.gateway.config.setting import Setting
from seqgate.gateway.handlers.admin.configs import alter_configs
from seqgate.gateway.metadata.configs import Alteration, ConfigChange
from seqgate.gateway.metadata.decision import ApiError
from seqgate.gateway.metadata.described import describe_broker
from seqgate.gateway.metadata.image import BROKER_RESOURCE, MetadataImage
from seqgate.gateway.metadata.records import MAX_CONFIG_BYTES
from tests.gateway.metadata.support import NODE_ID, replay

CONFIG: Config = load_config(
    overrides=[
        "listeners=PLAINTEXT://127.0.0.1:1,SECURED://127.0.0.1:2",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SECURED:SSL",
    ]
)
PREFIX = "listener.name.secured."
STORE = f"{PREFIX}ssl.keystore.location"
VALID = {
    "ssl.client.auth": "required",
    "plain.sasl.jaas.config": 'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="b";',
}
"""Values that these settings take; others take any number."""


@pytest.mark.parametrize(
    ("names", "of_all_brokers", "complaint"),
    [
        (["log.retention.ms", "max.connection.creation.rate"], True, None),
        ([f"{PREFIX}max.connections", f"{PREFIX}max.connection.creation.rate"], True, None),
        ([STORE, f"{PREFIX}ssl.truststore.certificates", f"{PREFIX}ssl.key.password"], False, None),
        (
            [STORE, f"{PREFIX}max.connections"],
            True,
            f"Cannot update these configs at default cluster level, broker id must be specified: [{STORE}]",
        ),
        (
            ["ssl.truststore.type", "ssl.keystore.location"],
            True,
            (
                "These security configs can be dynamically updated only per-listener using the listener "
                "prefix: [ssl.keystore.location, ssl.truststore.type]"
            ),
        ),
        (["ssl.keystore.location", "node.id"], False, "Cannot update these configs dynamically: [node.id]"),
        (
            [f"{PREFIX}ssl.client.auth"],
            False,
            (
                f"{PREFIX}ssl.client.auth cannot be updated dynamically for an existing listener; set it in "
                "the gateway's settings and restart the gateway"
            ),
        ),
        (
            [f"{PREFIX}plain.sasl.jaas.config"],
            False,
            (
                f"{PREFIX}plain.sasl.jaas.config cannot be updated dynamically for an existing listener; set "
                "it in the gateway's settings and restart the gateway"
            ),
        ),
        (
            ["listener.name.other.max.connections"],
            False,
            "Unknown listener in listener.name.other.max.connections: the listeners are PLAINTEXT, SECURED",
        ),
        (
            ["listener.name.plaintext.ssl.keystore.location"],
            False,
            (
                "listener.name.plaintext.ssl.keystore.location has no effect: listener PLAINTEXT speaks "
                "PLAINTEXT, without TLS"
            ),
        ),
        (
            ["listener.name.SECURED.max.connections"],
            False,
            "listener.name.SECURED.max.connections must have the name of its listener in lower case",
        ),
        ([f"{PREFIX}log.retention.ms", f"{PREFIX}no.such", "no.such"], False, None),
        (
            [f"{PREFIX}log.retention.ms", f"{PREFIX}num.network.threads", f"{PREFIX}max.connections"],
            True,
            (
                "Cannot update these configs at default cluster level, broker id must be specified: "
                f"[{PREFIX}log.retention.ms]"
            ),
        ),
    ],
)
def test_what_can_be_altered(names: list[str], of_all_brokers: bool, complaint: str | None) -> None:
    values = {name: VALID.get(name.removeprefix(PREFIX), "2") for name in names}
    error = refusal(values, of_all_brokers=of_all_brokers)
    assert (error and error.message) == complaint


def refusal(
    values: Mapping[str, str], config: Config = CONFIG, *, of_all_brokers: bool = False
) -> ApiError | None:
    return decided(MetadataImage(), values, config, of_all_brokers=of_all_brokers)


def decided(
    image: MetadataImage, values: Mapping[str, str], config: Config = CONFIG, *, of_all_brokers: bool = False
) -> ApiError | None:
    """Set the values on this broker or on all; return the error, or replay the records."""
    changes = [ConfigChange(name, value) for name, value in values.items()]
    alteration = Alteration(BROKER_RESOURCE, "" if of_all_brokers else str(NODE_ID), changes)
    decision = alter_configs(image, [alteration], config=config, node_id=NODE_ID)
    replay(image, decision)
    config.set_dynamic(image.configs(BROKER_RESOURCE, alteration.resource_name), all_brokers=of_all_brokers)
    return decision.answer[0]


def error_code(error: ApiError | None) -> ErrorCode | None:
    return None if error is None else error.error_code


@pytest.mark.parametrize("setting", KEPT_SETTINGS, ids=lambda setting: setting.name)
def test_every_row_of_a_kept_setting_is_sound(setting: Setting) -> None:
    assert setting.name not in BY_NAME
    assert setting.name not in READ_ONLY
    text = render(setting.default)
    assert text is None or setting.parse(text) == setting.default


def test_no_setting_of_the_gateway_is_in_the_tables_of_those_that_it_does_not_have() -> None:
    assert not READ_ONLY & BY_NAME.keys()
    assert not THREAD_COUNTS - BY_KEPT_NAME.keys()
    assert READ_ONLY_LISTS < READ_ONLY


def test_a_number_of_threads_can_be_doubled_and_halved_again_and_again() -> None:
    image, config = MetadataImage(), load_config()
    for count in ("16", "32", "16", "8", "4"):
        assert decided(image, {"num.io.threads": count}, config) is None
    error = decided(image, {"num.io.threads": "1"}, config)
    assert error is not None
    said = "it is 4, and can be at most doubled or halved at once"
    assert error.message == f"Invalid value 1 for configuration num.io.threads: {said}"
    assert decided(image, {"num.io.threads": "100"}, config, of_all_brokers=True) is None


def test_only_the_data_directory_can_be_cordoned() -> None:
    directory = str(CONFIG["log.dirs"])
    assert refusal({"cordoned.log.dirs": directory}) is None
    error = refusal({"cordoned.log.dirs": f"{directory},/other"})
    assert error is not None
    assert (
        error.message
        == "All entries in cordoned.log.dirs must be present in log.dirs. Missing entries: /other"
    )


def test_names_and_values_without_effect_are_limited() -> None:
    longest = "x" * MAX_CONFIG_BYTES
    assert refusal({longest: longest}) is None
    for values in ({f"{longest}x": "1"}, {"x": f"{longest}x"}):
        assert error_code(refusal(values)) == ErrorCode.invalid_request
    image, config = MetadataImage(), load_config()
    assert decided(image, {f"unknown.{n}": "1" for n in range(MAX_KEPT_NAMES)}, config) is None
    assert error_code(decided(image, {"one.more": "1"}, config)) == ErrorCode.policy_violation
    assert error_code(refusal({f"u{n}": longest for n in range(31)})) is None
    assert error_code(refusal({f"u{n}": longest for n in range(33)})) == ErrorCode.policy_violation
    assert decided(image, {"unknown.0": "2", "log.retention.ms": "5"}, config) is None


def test_the_value_of_an_unknown_name_is_not_shown() -> None:
    image, config = MetadataImage(), load_config()
    nested = "listener.name.a." * 1000 + "x"
    assert decided(image, {"unknown": "secret", nested: "secret"}, config) is None
    for entry in describe_broker(config, {"unknown", nested}):
        assert (entry.value, entry.is_sensitive, entry.read_only) == (None, True, True)
        assert [synonym.value for synonym in entry.synonyms] == [None]
