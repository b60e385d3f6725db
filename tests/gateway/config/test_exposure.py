from __future__ import annotations

import pytest

from seqgate.gateway.config import Config, ConfigError, load_config
from seqgate.gateway.config.listeners import is_loopback
from seqgate.gateway.config.load import exposure_complaint


def complaint(*overrides: str) -> str | None:
    return exposure_complaint(load_config(overrides=overrides))


def test_the_defaults_are_closed() -> None:
    assert exposure_complaint(Config()) is None


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.9.8.7", "localhost", "LOCALHOST", "[::1]", "[::ffff:127.0.0.1]"]
)
def test_everybody_may_listen_on_the_loopback(host: str) -> None:
    assert complaint(f"listeners=PLAINTEXT://{host}:9092") is None


@pytest.mark.parametrize(
    "host",
    [
        "",
        "0.0.0.0",
        "[::]",
        "192.0.2.7",
        "[2001:db8::1]",
        "kafka.example.org",
        "localhost.example.org",
        "127.example.org",
    ],
)
def test_other_addresses_need_authentication_or_the_word_insecure(host: str) -> None:
    listeners = f"listeners=PLAINTEXT://{host}:9092"
    sentence = complaint(listeners)
    assert sentence is not None
    assert (host or "every interface") in sentence
    assert "seqgate.allow.insecure.listeners=true" in sentence
    assert complaint(listeners, "seqgate.allow.insecure.listeners=true") is None


@pytest.mark.parametrize("auth", ["none", "requested"])
def test_tls_without_required_certificates_is_no_authentication(auth: str) -> None:
    sentence = complaint("listeners=SSL://:9093", f"listener.name.ssl.ssl.client.auth={auth}")
    assert f"ssl.client.auth is {auth}" in (sentence or "")


def test_required_certificates_are_authentication() -> None:
    assert complaint("listeners=SSL://:9093", "ssl.client.auth=required") is None
    assert complaint(
        "listeners=SSL://:9093", "ssl.client.auth=required", "listener.name.ssl.ssl.client.auth=none"
    )


def test_each_listener_counts() -> None:
    sentence = complaint("listeners=PLAINTEXT://127.0.0.1:9092,PLAINTEXT1://192.0.2.7:9093")
    assert "PLAINTEXT1 on 192.0.2.7:9093" in (sentence or "")


def test_an_address_of_a_link_is_not_the_loopback() -> None:
    assert not is_loopback("fe80::1%eth0")
    assert is_loopback("::1%lo")


def test_logins_are_authentication_unless_everybody_can_make_tokens() -> None:
    listeners = "listeners=SASL_SSL://:9093", "sasl.enabled.mechanisms=OAUTHBEARER"
    keys = "sasl.oauthbearer.jwks.endpoint.url=file:///keys.json"
    assert complaint(*listeners, keys) is None
    insecure = "listener.name.sasl_ssl.oauthbearer.seqgate.allow.insecure.oauthbearer.tokens=true"
    assert "insecure.oauthbearer.tokens is true" in (complaint(*listeners, insecure) or "")
    assert complaint(*listeners, insecure, "seqgate.allow.insecure.listeners=true") is None


def test_tokens_need_keys_before_the_gateway_starts() -> None:
    with pytest.raises(ConfigError, match=r"jwks\.endpoint\.url"):
        load_config(overrides=["listeners=SASL_SSL://127.0.0.1:9093", "sasl.enabled.mechanisms=OAUTHBEARER"])
