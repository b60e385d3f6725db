"""Asks every gateway and worker of a cluster for its metrics, and sums them.

The console asks over the Kafka protocol, as `seqgate metrics` does, and so finds the gateways by the cluster
itself. Where no broker answers such a question (Apache Kafka, a missing right, a login that the console does
not have), it asks the metrics listeners of `--metrics`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from seqgate.gateway.admin.metrics import MetricsPage, MetricsRequest
from seqgate.gateway.admin.producers import ListProducersRequest, ProducerPage
from seqgate.gateway.admin.remote.client_security import ClientSecurity
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.console.asking.gateways import AT_ONCE, TIMEOUT_S, BrokerMemory, GatewayAsker, Replies
from seqgate.gateway.console.metrics.history import Key
from seqgate.gateway.console.metrics.listener import MetricsClient, samples
from seqgate.gateway.console.metrics.rates import (
    WANTED,
    Reading,
    figures,
    free_bytes,
    labelled_figures,
    united_figures,
)

_QUESTION: Final = MetricsRequest("seqgate_")
"""The metrics of the gateway itself; the names of those that clients push begin otherwise."""


class GatewayMetrics:
    """Asks the gateways of one cluster for what the console samples. One thread uses it."""

    def __init__(
        self,
        addresses: Sequence[tuple[str, int]],
        security: ClientSecurity,
        listeners: Sequence[MetricsClient] = (),
        memory: BrokerMemory | None = None,
    ) -> None:
        """Prepare to ask. An answer ends the silence of a gateway in the `memory` of the pages."""
        self._listeners = listeners
        self._pool = ThreadPoolExecutor(AT_ONCE, "console-metrics")
        self._asker = GatewayAsker(addresses, security, self._pool, TIMEOUT_S, memory, asks_silent=True)

    def ask(self, *, asks_cluster: bool = True) -> tuple[Replies[MetricsPage], str | None]:
        """Return what all gateways tell, and why the brokers were not asked or told nothing, where listeners
        took their place. Without `asks_cluster` only listeners are asked. Raises ControlError when the
        cluster does not answer and the console has not seen its gateways.
        """
        found: Replies[MetricsPage] = Replies()
        if asks_cluster:
            try:
                found = self._asker.ask(_QUESTION)
            except ControlError as error:
                if not self._listeners:
                    raise
                found = Replies(trouble=str(error))
        if not self._listeners or any(row.trouble is None for row in found.rows):
            return found, None
        rows = list(self._pool.map(lambda listener: listener.reply(_QUESTION), self._listeners))
        note = found.trouble or next((row.trouble for row in found.rows), None)
        return Replies(rows, max(found.of, len(rows)), found.cluster_id), note

    def producers(self, limit: int) -> Replies[ProducerPage]:
        """Return the first producers of each gateway. Raises ControlError."""
        return self._asker.ask(ListProducersRequest(limit=limit))

    def close(self) -> None:
        self._pool.shutdown()
        self._asker.close()


# Sums what the gateways told. A gateway that tells nothing must not look like a fall of the rates: the sums
# have a gap for a while, and then are those of the others, as the figures of how many they are say.

GATEWAYS: Final = "gateways"
"""The gateways of the cluster."""
COUNTED: Final = "gateways_counted"
"""The gateways whose figures are in the sums."""
PATIENCE_MS: Final = 60_000
"""Time after which sums leave out a gateway that tells nothing."""


@dataclass(frozen=True, slots=True)
class GatewayRow:
    """A gateway, and its newest figures; none in its first round, or with `trouble`."""

    name: str
    address: str
    version: str = ""
    values: Mapping[str, float | None] = field(default_factory=dict)
    trouble: str | None = None


class Summary(NamedTuple):
    """The newest figures of each gateway, and of the cluster: `of` counts gateways, `counted` those in the
    sums. `note` is that of `GatewayMetrics.ask`, and `cluster_id` is None while nobody has told it.
    """

    rows: Sequence[GatewayRow] = ()
    values: Mapping[str, float | None] = {}
    counted: int = 0
    of: int = 0
    note: str | None = None
    cluster_id: str | None = None

    @property
    def tells(self) -> bool:
        """Whether a gateway told its metrics."""
        return any(row.trouble is None for row in self.rows)

    @property
    def is_partial(self) -> bool:
        """Whether some gateways told their metrics, and others did not."""
        return self.tells and any(row.trouble is not None for row in self.rows)

    @property
    def trouble(self) -> str | None:
        """Why no gateway told any."""
        return None if self.tells else next((row.trouble for row in self.rows), None)


class GatewayFigures:
    """Turns what the gateways tell again and again into figures. Pure."""

    def __init__(self) -> None:
        self._before: dict[str, Reading] = {}
        self._silent_since_ms: dict[str, int] = {}

    def see(
        self, now_ms: int, answers: Replies[MetricsPage], note: str | None = None
    ) -> tuple[Summary, dict[Key, float | None]]:
        """Return the figures since the last time, and those to sample: the sums, the slowest times, and the
        figures of topics and groups.
        """
        before, self._before = self._before, {}
        cluster_id = answers.cluster_id
        pairs: list[tuple[Reading, Reading]] = []
        rows: list[GatewayRow] = []
        for told in answers.rows:
            known = before.get(told.name)
            if told.answer is None:
                if known is not None:
                    self._before[told.name] = known
                rows.append(GatewayRow(told.name, told.address, trouble=told.trouble))
                continue
            try:
                text = "".join(each.text for each in told.answer.gateways)
                reading = Reading.of(now_ms / 1_000, samples(text, WANTED))
            except ControlError as error:
                rows.append(GatewayRow(told.name, told.address, trouble=str(error)))
                continue
            self._before[told.name] = reading
            cluster_id = cluster_id or reading.node.get("cluster_id")
            found: Mapping[str, float | None] = {}
            if known is not None and known.time_s < reading.time_s:
                found = figures(known, reading)
                pairs.append((known, reading))
            name = reading.node.get("node_id", told.name)
            rows.append(GatewayRow(name, told.address, reading.node.get("version", ""), found))
        is_whole = self._is_whole(now_ms, rows)
        united = united_figures((row.values for row in rows), sums=is_whole)
        counted = sum(bool(row.values) for row in rows)
        summary = Summary(rows, united, counted, answers.of, note, cluster_id)
        sampled: dict[Key, float | None] = {Key(name): value for name, value in united.items()}
        if rows:
            sampled |= {Key(GATEWAYS): answers.of, Key(COUNTED): counted}
        sampled |= free_bytes(reading for _, reading in pairs)
        if is_whole:
            sampled |= labelled_figures(pairs)
        return summary, sampled

    def _is_whole(self, now_ms: int, rows: Sequence[GatewayRow]) -> bool:
        """Return whether sums count: no gateway is missing, or those that are have been for long."""
        silent = [row.name for row in rows if not row.values]
        self._silent_since_ms = {name: self._silent_since_ms.get(name, now_ms) for name in silent}
        return all(now_ms - since_ms >= PATIENCE_MS for since_ms in self._silent_since_ms.values())
