"""A broker in a thread of a test's own process, on a free port.

with Broker() as broker:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Self

from seqgate.gateway.config import load_config
from seqgate.gateway.config.setting import LONG_MAX
from seqgate.gateway.testing.broker_thread import BrokerThread
from seqgate.gateway.testing.data_directory import DataDirectory, bootstrap_of
from seqgate.gateway.testing.exactly_once import explain_differences
from seqgate.gateway.testing.inside import BrokerClock
from seqgate.gateway.testing.stored import StoredProducer, StoredRecord


class AnyBroker(ABC):
    """A broker with one data directory, in this process or in one of its own. It can be stopped and started
    again, and keeps its port and its data.
    """

    def __init__(self, directory: Path | None) -> None:
        self._data = DataDirectory(directory)

    @property
    def directory(self) -> Path:
        """The data directory."""
        return self._data.path

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """The address for clients, HOST:PORT. Raises RuntimeError before the first start."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- its life

    @abstractmethod
    def start(self) -> None:
        """Start, and return when clients can connect. Raises StartFailed; RuntimeError if it runs already."""

    @abstractmethod
    def stop(self) -> None:
        """Stop cleanly, and return when all data is written; a stopped broker stays stopped."""

    def restart(self) -> None:
        """Stop cleanly and start again, on the same port with the same data."""
        self.stop()
        self.start()

    @abstractmethod
    def kill(self) -> None:
        """End at once, as kill -9 does: what was written stays, and `start` recovers the data."""

    @abstractmethod
    def power_cut(self) -> None:
        """End at once, and lose every record that was not flushed, as when the machine loses its power.

        With SETTINGS nothing is flushed before an answer. Set `log.flush.interval.messages` to "1" for a
        broker that loses no acknowledged record. Raises RuntimeError if the broker does not run.
        """

    @abstractmethod
    def reset(self) -> None:
        """Begin anew: no topics, groups, producers, transactions or faults, at the time of day, same port."""

    def close(self) -> None:
        """Stop, and remove a temporary directory."""
        try:
            self.stop()
        finally:
            self._data.remove_temporary()

    # --- looking inside

    @abstractmethod
    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic. Raises ValueError if the broker refuses it, for example because it exists."""

    @abstractmethod
    def topics(self) -> list[str]:
        """Return the names of the topics, internal ones left out."""

    @abstractmethod
    def records(self, topic: str) -> list[StoredRecord]:
        """Return the committed records of a topic, by partition and offset. Raises LookupError without it."""

    @abstractmethod
    def producers(self, topic: str) -> list[StoredProducer]:
        """Return the producers that the partitions of a topic track. Raises LookupError without it."""

    @abstractmethod
    def groups(self) -> dict[str, str]:
        """Return the state of each group, by its id."""

    def assert_exactly_once(self, topic: str, expected: Iterable[bytes | None]) -> None:
        """Check that the topic holds these values once, in each partition in the order of their sending.
        Raises AssertionError, which names the lost, doubled, unexpected and reordered records.
        """
        complaint = self._complaint(topic, expected)
        if complaint is not None:
            raise AssertionError(f"topic {topic}: {complaint}")

    @abstractmethod
    def _complaint(self, topic: str, expected: Iterable[bytes | None]) -> str | None: ...


class Broker(AnyBroker):
    """A broker in a thread of this process.

    `faults` lets requests fail, `clock` moves its time. Call all methods from threads of the test.
    """

    def __init__(self, directory: Path | None = None, settings: Mapping[str, str] | None = None) -> None:
        """Prepare the broker; `settings` override SETTINGS. Raises ConfigError for a wrong setting. Without a
        `directory` the data is in a temporary one, which `close` removes.
        """
        super().__init__(directory)
        chosen = {"listeners": "PLAINTEXT://127.0.0.1:0", **SETTINGS, **(settings or {})}
        config = load_config(None, {}, [f"{name}={value}" for name, value in chosen.items()])
        self._thread = BrokerThread(config, lambda: self._data.path)
        self._inside = self._thread.inside
        self.faults = self._thread.faults
        self.clock = BrokerClock(self._thread.advance)

    @property
    def bootstrap(self) -> str:
        return bootstrap_of(self._thread.port)

    @property
    def is_running(self) -> bool:
        return self._thread.is_running

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._thread.stop()

    def kill(self) -> None:
        self._thread.kill()

    def power_cut(self) -> None:
        self._thread.power_cut()

    def reset(self) -> None:
        self._thread.reset()

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        self._thread.run(lambda: self._inside.create_topic(name, partitions, configs or {}))

    def topics(self) -> list[str]:
        return self._thread.run(self._inside.topics)

    def records(self, topic: str) -> list[StoredRecord]:
        return self._thread.run(lambda: self._inside.records(topic))

    def producers(self, topic: str) -> list[StoredProducer]:
        return self._thread.run(lambda: self._inside.producers(topic))

    def groups(self) -> dict[str, str]:
        return self._thread.run(self._inside.groups)

    def live_brokers(self) -> int:
        """Return how many brokers of its cluster this one knows as running, itself among them."""
        return self._thread.run(self._inside.live_brokers)

    def partitions(self, topic: str) -> dict[int, bool]:
        """Return the partitions of a topic, and whether this broker leads each; none without the topic."""
        return self._thread.run(lambda: self._inside.led(topic))

    def _complaint(self, topic: str, expected: Iterable[bytes | None]) -> str | None:
        return explain_differences(self.records(topic), expected)


# The settings of a broker for tests.

SETTINGS: Final[Mapping[str, str]] = {
    "log.flush.interval.messages": str(LONG_MAX),
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1",
    "max.incremental.fetch.session.cache.slots": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
"""The settings that make a broker quick: no fsync before an answer, no wait for further members, small
internal topics. Without fetch sessions each fetch names its topics, so that faults find them.
"""
