"""Secrets in settings stay out of messages, whatever is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqgate.gateway.config import SETTINGS, Config, ConfigError, load_config
from seqgate.gateway.security.key_stores import Store

SECRET = "Qz7-planted-secret"
SENSITIVE = [setting.name for setting in SETTINGS if setting.sensitive]


def refusal(file: Path | None = None, environment: dict[str, str] | None = None, *overrides: str) -> str:
    with pytest.raises(ConfigError) as refused:
        load_config(file, environment, overrides)
    return str(refused.value)


def told(name: str, text: str) -> str:
    """Return the texts about a setting with this value: the error message if the value is refused, otherwise
    what DescribeConfigs shows.
    """
    try:
        return repr(load_config(overrides=[f"{name}={text}"]))
    except ConfigError as error:
        return str(error)


@pytest.mark.parametrize("name", SENSITIVE)
def test_a_sensitive_value_is_not_shown(name: str) -> None:
    for text in (SECRET, f"redis://:{SECRET}@host:port/", f'x required password="{SECRET}', f"{SECRET},,"):
        assert SECRET not in told(name, text)


def test_a_password_in_a_url_is_not_shown() -> None:
    message = refusal(None, None, f"sasl.oauthbearer.jwks.endpoint.url=https://me:{SECRET}@idp.example/keys")
    assert "https://***@idp.example/keys" in message
    assert SECRET not in message


def test_a_flag_with_a_wrong_sign_shows_its_name_only() -> None:
    message = refusal(None, None, f"ssl.key.password:{SECRET}")
    assert "ssl.key.password" in message
    assert SECRET not in message


def test_a_misspelt_name_shows_no_value(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(f'"ssl.key.pasword" = "{SECRET}"\n')
    assert SECRET not in refusal(file)
    assert SECRET not in refusal(None, {"SEQGATE_SSL_KEY_PASWORD": SECRET})
    assert SECRET not in refusal(None, None, f"ssl.key.pasword={SECRET}")


def test_a_broken_file_shows_no_line(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(f'"ssl.key.password" = "{SECRET}\n')
    assert SECRET not in refusal(file)


def test_a_store_does_not_show_its_secrets() -> None:
    assert SECRET not in repr(Store("x", "PEM", SECRET, SECRET, SECRET, SECRET))


def test_settings_do_not_show_their_values() -> None:
    assert SECRET not in repr(Config({"ssl.key.password": SECRET}))
