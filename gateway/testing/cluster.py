"""Several brokers over one temporary bucket, for tests of applications that lose one of them.

with Cluster(3) as cluster:
    cluster.create_topic("orders", partitions=6)
    cluster.leader("orders").kill()
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

from seqgate.gateway.testing.broker import Broker, NotNow
from seqgate.gateway.testing.data_directory import TemporaryDirectory
from seqgate.gateway.testing.differences import explain_differences
from seqgate.gateway.testing.stored import StoredRecord

CLUSTER_SETTINGS: Final[Mapping[str, str]] = {
    "seqgate.cluster.balance.delay.ms": "100",
    "seqgate.cluster.puts.per.second": "50",
}
"""The settings that make a cluster quick: a broker that comes back gets its share at once, and an answer does
not wait for others to share a write to the bucket.
"""
PATIENCE_S: Final = 120.0
_LOOK_EVERY_S: Final = 0.02


class Cluster:
    """Brokers in threads of this process that share their topics. What one has acknowledged, the others have
    after `kill`: they lead its partitions once it was silent for `seqgate.cluster.lease.ms` (6 s).

    Call `start`, `stop`, `kill` and `faults` of one of the `brokers`, but not its `reset` and `close`.
    """

    def __init__(self, size: int = 3, settings: Mapping[str, str] | None = None) -> None:
        """Prepare so many brokers; `settings` override those of `Broker` and CLUSTER_SETTINGS. Raises
        ConfigError for a wrong setting.
        """
        self._place = TemporaryDirectory()
        bucket = self._place.path / "bucket"
        bucket.mkdir()
        given = {**CLUSTER_SETTINGS, **(settings or {}), "seqgate.cluster": bucket.as_uri()}
        self.brokers: Final = tuple(Broker(self._place.path / f"cache-{each}", given) for each in range(size))

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers for clients, separated by commas."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._end(Broker.kill)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(Broker.stop if kind is None else Broker.kill)

    def start(self) -> None:
        """Start the brokers that do not run, and return when each knows the others. Raises StartFailed."""
        for broker in self.brokers:
            if not broker.is_running:
                broker.start()
        self._await(
            lambda: all(broker.live_brokers() == len(self.brokers) for broker in self.brokers),
            "every broker knows the others",
        )

    def close(self) -> None:
        """Stop all brokers, and remove the bucket."""
        self._end(Broker.stop)

    def _end(self, end: Callable[[Broker], None]) -> None:
        """End all brokers and remove the bucket, also when the end of a broker raises an error."""
        with ExitStack() as ending:
            ending.callback(self._place.remove)
            for broker in reversed(self.brokers):
                ending.callback(end, broker)

    # --- looking inside

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic, and return when its partitions have leaders. Raises ValueError if it is refused."""
        self._running()[0].create_topic(name, partitions, configs)
        self._leaders(name)

    def topics(self) -> list[str]:
        """Return the names of the topics, internal ones left out."""
        return self._running()[0].topics()

    def leader(self, topic: str, partition: int = 0) -> Broker:
        """Return the broker that leads a partition, once there is one. Raises LookupError without it."""
        leaders = self._leaders(topic)
        if partition not in leaders:
            raise LookupError(f"there is no partition {topic}-{partition}")
        return leaders[partition]

    def records(self, topic: str) -> list[StoredRecord]:
        """Return the committed records of a topic, by partition and offset, once each partition has a leader.
        Raises LookupError without it.
        """
        found: dict[Broker, list[StoredRecord]] = {}
        leaders: dict[int, Broker] = {}

        def all_read() -> bool:
            leaders.update(self._leaders(topic))
            try:
                found.update({broker: broker.records(topic) for broker in set(leaders.values())})
            except NotNow:  # a session has ended meanwhile, and another one leads
                return False
            return True

        self._await(all_read, f"every leader of {topic} answers")
        return [
            record
            for partition, broker in sorted(leaders.items())
            for record in found[broker]
            if record.partition == partition
        ]

    def assert_exactly_once(self, topic: str, expected: Iterable[bytes | None]) -> None:
        """Check that the topic holds these values once, as `Broker.assert_exactly_once`."""
        complaint = explain_differences(self.records(topic), expected)
        if complaint is not None:
            raise AssertionError(f"topic {topic}: {complaint}")

    def _leaders(self, topic: str) -> dict[int, Broker]:
        found: dict[int, Broker] = {}

        def all_led() -> bool:
            found.clear()
            counts = set()
            for broker in self._running():
                try:
                    partitions = broker.partitions(topic)
                except NotNow:  # its session has ended meanwhile
                    return False
                counts.add(len(partitions))
                found.update({index: broker for index, leads in partitions.items() if leads})
            return counts == {len(found)}

        self._await(all_led, f"every partition of {topic} has a leader")
        if not found:
            raise LookupError(f"there is no topic {topic!r}")
        return found

    def _running(self) -> list[Broker]:
        running = [broker for broker in self.brokers if broker.is_running]
        if not running:
            raise RuntimeError("no broker runs: call start() first")
        return running

    def _await(self, holds: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not holds():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"not within {PATIENCE_S:g} s: {what}")
            time.sleep(_LOOK_EVERY_S)
