from __future__ import annotations

import pytest

from seqgate.gateway.config import Config, ConfigError, load_config
from seqgate.gateway.config.load import enabled_mechanisms

LISTENER = "listeners=SASL_SSL://127.0.0.1:1"
USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="hunter2";'
PREFIX = "listener.name.sasl_ssl."


def load(*overrides: str) -> Config:
    return load_config(overrides=[LISTENER, *overrides])


def test_a_setting_for_a_mechanism_comes_before_that_for_the_listener() -> None:
    config = load(
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,PLAIN",
        f"{PREFIX}plain.sasl.jaas.config={USERS}",
        f"{PREFIX}connections.max.reauth.ms=1000",
        f"{PREFIX}scram-sha-256.connections.max.reauth.ms=2000",
    )
    assert enabled_mechanisms(config, "SASL_SSL") == ("PLAIN", "SCRAM-SHA-256")
    assert config.of_mechanism("SASL_SSL", "PLAIN", "connections.max.reauth.ms") == 1000
    assert config.of_mechanism("SASL_SSL", "SCRAM-SHA-256", "connections.max.reauth.ms") == 2000
    assert config.of_mechanism("OTHER", "PLAIN", "connections.max.reauth.ms") == 0


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ((), "listener SASL_SSL has no mechanism to log in with; set listener.name.sasl_ssl.sasl.enabled"),
        (("sasl.enabled.mechanisms=GSSAPI",), "GSSAPI is no mechanism of this gateway; choose from PLAIN"),
        (("sasl.enabled.mechanisms=plain",), "plain is no mechanism"),
        (
            ("sasl.enabled.mechanisms=PLAIN",),
            "PLAIN on listener SASL_SSL has no users; set listener.name.sasl",
        ),
        ((f"sasl.jaas.config={USERS}",), "sasl.jaas.config must name a listener and a mechanism"),
        ((f"{PREFIX}kerberos.sasl.jaas.config={USERS}",), "Unknown setting"),
        ((f"{PREFIX}plain.ssl.client.auth=none",), "Unknown setting"),
        ((f"{PREFIX}plain.sasl.jaas.config={USERS[:-1]}",), "end with a semicolon"),
        (("sasl.kerberos.service.name=kafka",), "Kerberos .GSSAPI. is not supported"),
    ],
)
def test_a_listener_that_cannot_log_clients_in_is_refused(overrides: tuple[str, ...], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        load(*overrides)
    assert "hunter2" not in str(refused.value)
