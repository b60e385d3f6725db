"""Counts connections and decides which are accepted, by limits on all connections, on those of a listener or
an address, and on the rate of new connections.

Source: Kafka's ConnectionQuotas. A connection beyond a limit on the number is closed. A connection beyond the
rate of its address is closed after a delay, which keeps the address from trying again at once. Beyond the
rate of a listener, or of all listeners, no connection is closed; the next connections are accepted later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from gateway.config import Config
from gateway.config.connection_limits import parse_overrides
from gateway.config.setting import INT_MAX
from gateway.quota.clients.client_quotas import Rate, Windows
from gateway.runtime.loop.machine import split_file_handles
from gateway.runtime.quotas.client_quotas import ClientQuotas

MAX_CONNECTIONS: Final = "max.connections"
CREATION_RATE: Final = "max.connection.creation.rate"
_ALL: Final = ""
"""The name that stands for all listeners; no listener has an empty name."""


class Verdict(NamedTuple):
    """The decision about a new connection, and about the connections that come after it."""

    refusal: str = ""
    """The reason why the connection is refused; empty when it is accepted."""
    close_after_ms: int = 0
    """The time after which a refused connection is closed."""
    hold_ms: int = 0
    """The time for which its listener accepts no further connection."""


class Admission:
    """Counts the connections of one server."""

    def __init__(
        self,
        config: Config,
        now_ms: Callable[[], int],
        quotas: ClientQuotas | None,
        handles_limit: int,
    ) -> None:
        """Begin without connections. The process may open `handles_limit` files and sockets together."""
        self._config = config
        self._now_ms = now_ms
        self._quotas = quotas
        self._handles_limit = handles_limit
        self._total = 0
        self._per_host: Counter[str] = Counter()
        self._per_listener: Counter[str] = Counter()
        self._longest_ms = config.int("quota.window.size.seconds") * 1000
        self._windows = Windows(config.int("quota.window.num"), self._longest_ms)
        self._rates: dict[str, Rate] = {}
        """The rates of new connections, by the name of the listener."""

    def admit(self, listener_name: str, host: str) -> Verdict:
        """Count a new connection, and decide."""
        self._total += 1
        self._per_host[host] += 1
        self._per_listener[listener_name] += 1
        hold_ms = self._charge(listener_name)
        refusal = self._limit_complaint(listener_name, host)
        if refusal:
            return Verdict(refusal, hold_ms=hold_ms)
        if self._quotas is not None and self._quotas.limits_connections:
            close_after_ms = self._quotas.delay_of_connection(host)
            if close_after_ms:
                self._take_back(listener_name)
                return Verdict("its address is over its connection_creation_rate", close_after_ms)
        return Verdict(hold_ms=hold_ms)

    def dismiss(self, listener_name: str, host: str) -> None:
        """Stop counting a connection that is gone."""
        self._total -= 1
        for counts, key in ((self._per_host, host), (self._per_listener, listener_name)):
            counts[key] -= 1
            if not counts[key]:
                del counts[key]

    def _limit_complaint(self, listener_name: str, host: str) -> str:
        config = self._config
        limit = config.int(MAX_CONNECTIONS)
        if self._total > limit:
            return f"{MAX_CONNECTIONS} is {limit}"
        of_listener = config.own_of_listener(listener_name, MAX_CONNECTIONS)
        if isinstance(of_listener, int) and self._per_listener[listener_name] > of_listener:
            return f"listener.name.{listener_name.lower()}.{MAX_CONNECTIONS} is {of_listener}"
        handles = split_file_handles(self._handles_limit, config.int("seqgate.log.max.open.files"))
        if self._total > handles.connections:
            return f"the process may open {self._handles_limit} files (ulimit -n), {handles.connections} for connections"
        overrides = parse_overrides(config.str("max.connections.per.ip.overrides"))
        per_host = overrides.get(host, config.int("max.connections.per.ip"))
        if self._per_host[host] > per_host:
            return f"max.connections.per.ip is {per_host} for it"
        return ""

    # the rates of new connections

    def _charge(self, listener_name: str) -> int:
        """Count a new connection in the rates; return the time (ms) until they are within their limits again."""
        hold_ms = 0
        for key, limit in self._limited_rates(listener_name):
            rate = self._rates.get(key)
            if rate is None:
                rate = self._rates[key] = Rate(self._windows)
            now_ms = self._now_ms()
            rate.record(1.0, now_ms)
            hold_ms = max(hold_ms, rate.throttle_ms(limit, now_ms))
        return min(hold_ms, self._longest_ms)

    def _take_back(self, listener_name: str) -> None:
        for key, _ in self._limited_rates(listener_name):
            self._rates[key].record(-1.0, self._now_ms())

    def _limited_rates(self, listener_name: str) -> list[tuple[str, int]]:
        of_all = self._config.int(CREATION_RATE)
        of_listener = self._config.own_of_listener(listener_name, CREATION_RATE)
        rates = [(_ALL, of_all)] if of_all < INT_MAX else []
        if isinstance(of_listener, int):
            rates.append((listener_name, of_listener))
        return rates
