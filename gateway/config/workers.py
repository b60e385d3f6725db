"""The settings of each of several workers of one command: its node id and its ports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from seqgate.gateway.config.config import Config
from seqgate.gateway.config.listeners import HIGHEST_PORT, Listener, parse_listener
from seqgate.gateway.config.load import missing_login
from seqgate.gateway.config.metrics import METRICS_LISTENER, metrics_listener


def workers_complaint(config: Config) -> str | None:
    """Return why several workers can't run with these settings; None where they can, and for one worker."""
    count = config.int("seqgate.workers")
    if count == 1:
        return None
    own = (*config.listeners, *_metrics(config))
    complaint = _ports_complaint(own, count, "listen on")
    complaint = complaint or _ports_complaint(config.advertised_listeners, count, "advertise")
    if complaint is not None:
        return complaint
    missing = missing_login(config)
    return None if missing is None else f"the workers could not ask each other: {missing}"


def _ports_complaint(listeners: Iterable[Listener], count: int, does: str) -> str | None:
    """Return which port no worker or two workers would have; None if each listener has enough of its own."""
    taken: Counter[tuple[str, int]] = Counter()
    for listener in listeners:
        for port in _ports(listener, count):
            if port > HIGHEST_PORT:
                return (
                    f"listener {listener.name}: worker {count} would {does} port {port}, "
                    f"and the highest is {HIGHEST_PORT}"
                )
            taken[listener.host, port] += 1
    for (host, port), times in taken.items():
        if times > 1:
            return (
                f"two workers would {does} {host}:{port}: "
                f"each listener needs {count} consecutive ports of its own, one for each worker"
            )
    return None


def worker_config(config: Config, number: int) -> Config:
    """Return the settings of worker `number` (from 1). A gateway of a bucket chooses an unset node id."""
    own = config.apart()
    if config.is_set("node.id") or config.optional_str("seqgate.cluster") is None:
        own.choose("node.id", config.int("node.id") + number - 1)
    for name, listeners in (
        ("listeners", config.listeners),
        ("advertised.listeners", config.advertised_listeners),
    ):
        if listeners:
            own.choose(name, tuple(_shown(_moved(listener, number - 1)) for listener in listeners))
    if (metrics := config.optional_str(METRICS_LISTENER)) is not None:
        own.choose(METRICS_LISTENER, _shown(_moved(parse_listener(metrics), number - 1)))
    return own


def _metrics(config: Config) -> Iterator[Listener]:
    text = config.optional_str(METRICS_LISTENER)
    if text is not None:
        yield metrics_listener(text)


def _ports(listener: Listener, count: int) -> range:
    return range(listener.port, listener.port + count) if listener.port else range(0)


def _moved(listener: Listener, by: int) -> Listener:
    return replace(listener, port=listener.port + by) if listener.port else listener


def _shown(listener: Listener) -> str:
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{listener.name}://{host}:{listener.port}"
