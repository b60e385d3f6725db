from __future__ import annotations

import pytest

from seqgate.gateway.config import ConfigError, load_config
from seqgate.gateway.config.listeners import SecurityProtocol, parse_listener, parse_protocol_map, protocol_of


def test_names_and_protocols_are_taken_in_any_case() -> None:
    assert parse_protocol_map("internal:ssl, EXTERNAL:PLAINTEXT") == {
        "INTERNAL": SecurityProtocol.SSL,
        "EXTERNAL": SecurityProtocol.PLAINTEXT,
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("A", "'A' must have the form NAME:PROTOCOL"),
        (":SSL", "':SSL' must have the form NAME:PROTOCOL"),
        ("A:SSL,a:PLAINTEXT", "the listener name A occurs twice"),
        (
            "A:TLS",
            "TLS in 'A:TLS' is no security protocol; choose from PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
    ],
)
def test_a_malformed_map_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match="^" + reason.replace("'", ".") + "$"):
        parse_protocol_map(text)


@pytest.mark.parametrize("host", ["a..b", ".a", "x" * 64 + ".example"])
def test_a_host_that_no_client_can_look_up_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match=f"'{host}' is not the name of a host"):
        load_config(overrides=[f"advertised.listeners=PLAINTEXT://{host}:9092"])
    assert parse_listener(f"{'x' * 63}.example.:9092").host


def test_the_further_listeners_of_the_flag_speak_plaintext() -> None:
    assert protocol_of("PLAINTEXT3", {}) is SecurityProtocol.PLAINTEXT


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("INTERNAL", "has no security protocol; add INTERNAL:"),
        ("SASL_SSL", "listener SASL_SSL has no mechanism to log in with"),
    ],
)
def test_a_listener_without_a_protocol_is_refused(name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        load_config(overrides=[f"listeners={name}://127.0.0.1:1"])


def test_a_setting_for_one_listener_comes_before_the_one_for_all() -> None:
    config = load_config(
        overrides=[
            "listeners=SSL://127.0.0.1:1,INTERNAL://127.0.0.1:2",
            "listener.security.protocol.map=SSL:SSL,INTERNAL:SSL",
            "ssl.client.auth=required",
            "listener.name.internal.ssl.client.auth=none",
            "listener.name.internal.ssl.enabled.protocols=TLSv1.3",
        ]
    )
    assert config.of_listener("SSL", "ssl.client.auth") == "required"
    assert config.of_listener("INTERNAL", "ssl.client.auth") == "none"
    assert config.of_listener("INTERNAL", "ssl.enabled.protocols") == ("TLSv1.3",)
    assert config.of_listener("SSL", "ssl.enabled.protocols") == ("TLSv1.2", "TLSv1.3")


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("listener.name.internal.node.id=3", "Unknown setting listener.name.internal.node.id"),
        ("listener.name.internal.ssl.client.auth=maybe", "allowed: one of none, requested, required"),
        ("listener.name.a.b.ssl.client.auth=none", "Unknown setting"),
        (
            "listener.name.internal.ssl.client.auth=required",
            "is for listener INTERNAL, which is not in listeners; allowed: PLAINTEXT",
        ),
        (
            'listener.name.sasl_ssl.plain.sasl.jaas.config=PlainLoginModule required user_a="hunter2";',
            "^Setting listener.name.sasl_ssl.plain.sasl.jaas.config is for listener SASL_SSL, which is not in",
        ),
    ],
)
def test_a_wrong_setting_for_one_listener_is_refused(override: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        load_config(overrides=[override])
    assert "hunter2" not in str(refused.value)


def test_a_store_in_javas_own_format_is_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigError) as error:
        load_config(overrides=["ssl.keystore.type=JKS"])
    assert "keytool -importkeystore" in str(error.value)
