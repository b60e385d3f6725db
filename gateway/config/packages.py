"""The packages that only some settings need: the extras, such as `pip install 'seqgate[redis]'`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Final

from seqgate.gateway.config.config import Config
from seqgate.gateway.config.load import enabled_mechanisms
from seqgate.gateway.config.metrics import OTLP_ENDPOINT

OTLP, REDIS, SECURITY = "otlp", "redis", "security"
PACKAGES: Final[Mapping[str, Sequence[str]]] = {
    OTLP: ("httpx", "opentelemetry.proto"),
    REDIS: ("redis",),
    SECURITY: ("cryptography", "jwt"),
}
"""The packages of each extra, as they are imported."""


def missing_package(config: Config) -> str | None:
    """Return the sentence about a package that the settings need and that is missing; None without one."""
    for extra, purpose in _needed(config):
        for name in PACKAGES[extra]:
            if not is_installed(name):
                return install(name, purpose, extra)
    return None


def is_installed(name: str) -> bool:
    """Whether a package, or a part of one such as `opentelemetry.proto`, can be imported."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def install(name: str | None, purpose: str, extra: str) -> str:
    """Return the sentence about a missing package that says which extra has it."""
    return f"the package {name}, which {purpose} needs, is not installed; run: pip install 'seqgate[{extra}]'"


def _needed(config: Config) -> Iterator[tuple[str, str]]:
    if config.optional_str(OTLP_ENDPOINT) is not None:
        yield OTLP, OTLP_ENDPOINT
    if config.str("seqgate.producer.id.store") == "redis":
        yield REDIS, "seqgate.producer.id.store=redis"
    for listener in config.listeners:
        protocol = config.protocol_of(listener.name)
        if protocol.has_tls:
            yield SECURITY, f"listener {listener.name}, with TLS,"
        if protocol.has_logins and "OAUTHBEARER" in enabled_mechanisms(config, listener.name):
            yield SECURITY, f"listener {listener.name}, with OAUTHBEARER,"
