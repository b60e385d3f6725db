"""A gateway whose settings need a package that is not installed says which extra has it."""

from __future__ import annotations

import pytest

from seqgate.gateway.config import load_config
from seqgate.gateway.config import packages as module
from seqgate.gateway.config.packages import PACKAGES, missing_package

TLS = ["listeners=SSL://127.0.0.1:0"]
TOKENS = [
    "listeners=SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms=OAUTHBEARER",
    "seqgate.allow.insecure.oauthbearer.tokens=true",
]


@pytest.mark.parametrize(
    ("settings", "package", "purpose", "extra"),
    [
        (["seqgate.otlp.endpoint=http://127.0.0.1:1/"], "httpx", "seqgate.otlp.endpoint", "otlp"),
        (
            ["seqgate.otlp.endpoint=http://127.0.0.1:1/"],
            "opentelemetry.proto",
            "seqgate.otlp.endpoint",
            "otlp",
        ),
        (["seqgate.producer.id.store=redis"], "redis", "seqgate.producer.id.store=redis", "redis"),
        (TLS, "cryptography", "listener SSL, with TLS,", "security"),
        (TOKENS, "jwt", "listener SASL_PLAINTEXT, with OAUTHBEARER,", "security"),
    ],
)
def test_a_missing_package_is_named_with_what_to_do(
    settings: list[str], package: str, purpose: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config(overrides=settings)
    assert missing_package(config) is None

    def find(name: str) -> object:
        if name == package:
            raise ModuleNotFoundError(name=package)
        return object()

    monkeypatch.setattr(module, "find_spec", find)
    assert missing_package(config) == (
        f"the package {package}, which {purpose} needs, is not installed; run: pip install 'seqgate[{extra}]'"
    )


def test_other_settings_need_no_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    assert missing_package(load_config()) is None
    assert not any(map(module.is_installed, PACKAGES))
