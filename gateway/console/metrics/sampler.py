"""The thread that reads the figures for the charts, again and again."""

from __future__ import annotations

import threading
import time
from typing import Final

from gateway.admin.remote.client_security import ClientSecurity
from gateway.admin.request import ControlError
from gateway.console.asking.connections import Connections, WayIn, leaders_of
from gateway.console.metrics.end_offsets import end_offsets, new_records
from gateway.console.metrics.exposition import samples
from gateway.console.metrics.history import History
from gateway.console.metrics.leader_changes import LeaderChanges
from gateway.console.metrics.listener import MetricsListener
from gateway.console.metrics.rates import RECORDS, Reading, figures
from gateway.console.metrics.watches import Watches

EVERY_S: Final = 2.0
LEADERS_EVERY: Final = 5
"""Rounds between two looks at the leaders of all partitions."""
IDLE_EVERY: Final = 20
"""A round costs at most one part in so many of the time: after a slow round the pause is longer."""
FIRST_ROUNDS: Final = 2
"""Rounds after which no longer pause follows: they open connections, and a chart begins with the second."""


class Sampler:
    """Reads figures every two seconds while the console runs.

    The figures come from the metrics listener, and without one from the end offsets, as the login of --command-config.
    Where the cluster needs a login that the console lacks, there are none.
    """

    def __init__(
        self,
        listener: MetricsListener | None,
        connections: Connections,
        way_in: WayIn,
        security: ClientSecurity,
    ) -> None:
        """Prepare; `start` begins to read."""
        self.history = History()
        self.watches = Watches()
        self.leader_changes = LeaderChanges()
        self.error: str | None = None
        """Why the last round has no figures; None when it has."""
        self._listener = listener
        self._connections = connections
        self._way_in = way_in
        self._security = security
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._before: Reading | None = None
        self._ends: tuple[float, dict[tuple[str, int], int]] | None = None
        self._rounds = 0

    def start(self) -> None:
        """Begin to read."""
        self._thread = threading.Thread(target=self._run, name="console-sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the round that runs."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=10.0)

    def _run(self) -> None:
        while not self._stopping.is_set():
            begin = time.monotonic()
            self.sample()
            self._stopping.wait(pause_s(time.monotonic() - begin, self._rounds))

    def sample(self) -> None:
        """Read all figures once."""
        now_ms = time.time_ns() // 1_000_000
        try:
            found = self._figures()
            self.error = None
        except ControlError as error:
            self.error = str(error)
            found = {}
        self.history.add(now_ms, found)
        if self._rounds % LEADERS_EVERY == 0:
            self._see_leaders(now_ms)
        self._rounds += 1
        for read, history in self.watches.due():
            try:
                values = dict(read())
            except ControlError:
                values = {}
            history.add(now_ms, values)

    def _figures(self) -> dict[str, float | None]:
        if self._listener is None:
            return self._figures_from_offsets()
        reading = Reading.of(time.monotonic(), samples(self._listener.metrics()))
        before, self._before = self._before, reading
        return {} if before is None else figures(before, reading)

    def _see_leaders(self, now_ms: int) -> None:
        """Look at the leaders where the console may ask; elsewhere only the people who are logged in look, on the page of the cluster."""
        try:
            if not self._needs_login():
                with self._connections.lend(self._security) as cluster:
                    self.leader_changes.see(now_ms, leaders_of(cluster))
        except ControlError:
            pass  # the page of the cluster shows why it does not answer

    def _needs_login(self) -> bool:
        return not self._security.mechanism and bool(self._way_in.mechanisms())

    def _figures_from_offsets(self) -> dict[str, float | None]:
        if self._needs_login():
            raise ControlError(
                "the charts need --metrics, or a login of the console's own by --command-config, because the cluster needs a login"
            )
        with self._connections.lend(self._security) as cluster:
            ends = end_offsets(cluster)
        now = time.monotonic()
        before, self._ends = self._ends, (now, ends)
        if before is None:
            return {}
        return {RECORDS: new_records(before[1], ends) / max(now - before[0], 1e-3)}


def pause_s(taken_s: float, rounds: int) -> float:
    """Return how long to pause after a round that took `taken_s`; `rounds` counts the rounds so far."""
    share_s = taken_s * IDLE_EVERY if rounds > FIRST_ROUNDS else 0.0
    return max(EVERY_S - taken_s, share_s, 0.1)
