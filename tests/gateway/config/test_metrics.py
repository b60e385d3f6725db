"""The settings of the metrics listener."""

from __future__ import annotations

import pytest

from seqgate.gateway.config import ConfigError, load_config
from seqgate.gateway.config.metrics import METRICS_LISTENER


@pytest.mark.parametrize("address", ["127.0.0.1:9644", "[::1]:9644", "metrics.example:9644", ":9644"])
def test_an_address_is_a_listener(address: str) -> None:
    assert load_config(overrides=[f"{METRICS_LISTENER}={address}"]).str(METRICS_LISTENER) == address


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("SSL://127.0.0.1:9644", "without a name or scheme"),
        ("http://127.0.0.1:9644", "without a name or scheme"),
        ("127.0.0.1", "a port is missing"),
        ("127.0.0.1:99999", "is not between 0 and 65535"),
        ("::1:9644", "stands in brackets"),
    ],
)
def test_anything_else_is_refused(address: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load_config(overrides=[f"{METRICS_LISTENER}={address}"])
