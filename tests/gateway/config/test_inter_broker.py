"""The settings of the connections between gateways."""

from __future__ import annotations

import pytest

from seqgate.gateway.config import ConfigError, load_config
from seqgate.gateway.config.load import inter_broker_listener, peer_login

TWO = "listeners=PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0"
MAP = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INSIDE:SASL_PLAINTEXT"
PLAIN = (
    "sasl.enabled.mechanisms=PLAIN",
    (
        'listener.name.inside.plain.sasl.jaas.config=PlainLoginModule required username="u" password="p" '
        'user_u="p";'
    ),
    "sasl.mechanism.inter.broker.protocol=PLAIN",
)


def test_the_first_listener_is_the_default() -> None:
    assert inter_broker_listener(load_config(overrides=[TWO, MAP, *PLAIN])) == "PLAINTEXT"


def test_a_listener_is_named_in_any_case() -> None:
    config = load_config(overrides=[TWO, MAP, *PLAIN, "inter.broker.listener.name=inside"])
    assert inter_broker_listener(config) == "INSIDE"
    assert peer_login(config, "INSIDE") == ("u", "p")


def test_an_unknown_listener_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"inter\.broker\.listener\.name is OTHER, which is not in listeners"
    ):
        load_config(overrides=["inter.broker.listener.name=OTHER"])


def test_a_login_without_its_user_is_refused() -> None:
    lacking = [*PLAIN]
    lacking[1] = 'listener.name.inside.plain.sasl.jaas.config=PlainLoginModule required user_u="p";'
    with pytest.raises(ConfigError, match="must have username and password"):
        load_config(overrides=[TWO, MAP, *lacking, "inter.broker.listener.name=INSIDE"])


def test_the_check_of_names_is_https_or_off() -> None:
    load_config(overrides=["ssl.endpoint.identification.algorithm="])
    with pytest.raises(ConfigError, match="choose https"):
        load_config(overrides=["ssl.endpoint.identification.algorithm=dns"])
