"""Applications read files while they and the gateway are killed and restarted; then Spark counts the stored
lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tests.faults.deduplication.checker import Row, check, shown
from tests.faults.deduplication.deleting import rows_deleted
from tests.faults.deduplication.lines import lines_of, written_lines
from tests.faults.deduplication.lives import Application, Point, Progress, await_all
from tests.faults.deduplication.reading import await_decided, how_often, named_records, rows_of
from tests.faults.deduplication.task import Task
from tests.faults.kill.load import KillableGateway, create_topic, fixed_port
from tests.faults.kill.test_kill_nine import START_TICKS, WHILE_STARTING
from tests.faults.processes.scene import Outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 4
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "seqgate.deduplication.snapshot.records": "1000",
}
SEGMENT_BYTES = 60_000
"""Small enough for several segments: after a kill the gateway loads a snapshot and replays the batches behind
it.
"""
END_TIMEOUT_S = 600.0
MOST_RECORDS_BETWEEN = 2500
"""The most records of all applications between two kills of the gateway."""
IDEMPOTENT = 0.6
"""The probability that an application uses an idempotent producer where a plain one would suffice."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
STOPPED_CLEANLY = 0.2
"""The share of gateway starts that follow SIGTERM."""
DELETED_BEFORE = 0.5
"""The share of stops and kills of the gateway before which records are deleted, in rounds that delete
records.
"""
PLAIN, TRANSACTIONAL = "lines", "transactional-lines"


@dataclass(frozen=True)
class Role:
    """The role of one application.

    `transactional` is "" without transactions. Otherwise each start uses the `same` or a `new` transactional
    id.
    """

    library: str
    codec: str
    unit: str
    by_key: bool
    transactional: str = ""
    is_idempotent: bool = True

    @property
    def topic(self) -> str:
        return TRANSACTIONAL if self.transactional else PLAIN

    @property
    def name(self) -> str:
        """The producer's name."""
        kind = self.transactional or ("" if self.is_idempotent else "plain")
        return f"{self.library} {kind}".strip()


ROLES = (
    Role("kafka-python", "gzip", "number", by_key=False),
    Role("aiokafka", "snappy", "position", by_key=True),
    Role("confluent-kafka", "lz4", "position", by_key=False),
    Role("jvm", "zstd", "number", by_key=True),
    Role("confluent-kafka", "none", "number", by_key=False, is_idempotent=False),
    Role("confluent-kafka", "none", "number", by_key=False, transactional="new"),
    Role("jvm", "none", "position", by_key=False, transactional="same"),
)


@dataclass(frozen=True)
class Plot:
    """The size of a run: the kills of each application, the kills of the gateway, and the lines of each file."""

    application_kills: int
    gateway_kills: int
    lines: int
    roles: Sequence[Role] = ROLES
    is_deduplicating: bool = True
    deletes: bool = False
    """Whether records are read and then deleted while applications run, so that the log alone does not hold
    all names.
    """
    only_late: bool = False
    """Whether applications are killed only after an acknowledgement."""


def any_roles(rng: Random) -> list[Role]:
    """Return random roles for the same libraries."""
    roles = [
        replace(
            role,
            codec=rng.choice(CODECS),
            unit=rng.choice(("number", "position")),
            by_key=rng.random() < 0.5,
            transactional=rng.choice(("same", "new")) if role.transactional else "",
            is_idempotent=bool(role.transactional) or rng.random() < IDEMPOTENT,
        )
        for role in ROLES
    ]
    return list({role.name: role for role in roles}.values())


class Story:
    """One run: applications send the lines of files to one gateway while applications and gateway are killed;
    then Spark counts the lines.

    Each role has an application, a file and a producer name of its own.
    """

    def __init__(self, directory: Path, seed: int, plot: Plot) -> None:
        self._directory = directory
        self._rng = Random(seed)
        self._plot = plot
        self._files = {role.name: written_lines(self._rng, plot.lines) for role in plot.roles}
        self._progress = Progress()
        self._gateway_kills = 0
        self._deleted: dict[str, list[Row]] = {}
        """The records deleted from each topic, as they were read before."""
        self.outcome = Outcome()

    def play(self, spark: SparkSession) -> Outcome:
        """Run everything from the first start to Spark's count."""
        gateway = KillableGateway(self._directory / "data", settings=dict(SETTINGS), port=fixed_port())
        topics = dict.fromkeys(role.topic for role in self._plot.roles)
        with gateway:
            for topic in topics:
                create_topic(
                    gateway.bootstrap,
                    topic,
                    PARTITIONS,
                    internal_segment_bytes=SEGMENT_BYTES,
                    message_deduplication_enable=str(self._plot.is_deduplicating).lower(),
                )
            with self._applications(gateway) as applications:
                self._kill_gateway(gateway)
                await_all(applications, self._progress, END_TIMEOUT_S)
            for topic in topics:
                self._count(spark, gateway.bootstrap, topic)
        if any(word in gateway.stderr_text() for word in ("Traceback", "Fatal error")):
            self.outcome.breaches.append("the gateway logged an unexpected exception")
        return self.outcome

    @contextmanager
    def _applications(self, gateway: KillableGateway) -> Iterator[list[Application]]:
        applications = [self._application(role, gateway.bootstrap) for role in self._plot.roles]
        for application in applications:
            application.start()
        try:
            yield applications
        finally:
            for application in applications:
                application.give_up()
                application.join(END_TIMEOUT_S)
                self.outcome.merge(Outcome(application.counts, shown(application.breaches)))

    def _application(self, role: Role, bootstrap: str) -> Application:
        path = self._directory / f"{role.name}.txt"
        path.write_bytes(self._files[role.name])
        task = Task(
            library=role.library,
            bootstrap=bootstrap,
            topic=role.topic,
            partitions=PARTITIONS,
            name=role.name,
            file=str(path),
            unit=role.unit,
            by_key=role.by_key,
            codec=role.codec,
            is_idempotent=role.is_idempotent,
            transactional_id=role.name if role.transactional else "",
        )
        return Application(
            task=task,
            new_transactional_ids=role.transactional == "new",
            rng=Random(self._rng.randrange(2**32)),
            kills=self._plot.application_kills,
            progress=self._progress,
            draw=Point.drawn_late
            if self._plot.only_late
            else partial(Point.drawn, transactional=bool(role.transactional)),
            may_end=lambda: self._gateway_kills >= self._plot.gateway_kills,
            directory=self._directory,
            remembers=self._plot.is_deduplicating,
        )

    def _kill_gateway(self, gateway: KillableGateway) -> None:
        while self._gateway_kills < self._plot.gateway_kills:
            self._progress.await_further(self._rng.randint(1, MOST_RECORDS_BETWEEN))
            if self._plot.deletes and self._rng.random() < DELETED_BEFORE:
                self._delete_records(gateway.bootstrap)
            if self._rng.random() < STOPPED_CLEANLY:
                gateway.restart()
                self.outcome.counts["gateway stopped and started"] += 1
                continue
            gateway.kill()
            kills = 1
            if self._rng.random() < WHILE_STARTING:
                gateway.kill_while_starting(self._rng.randint(*START_TICKS))
                kills += 1
            gateway.start()
            self._gateway_kills += kills
            self.outcome.counts["gateway killed"] += kills

    def _delete_records(self, bootstrap: str) -> None:
        for topic in {role.topic for role in self._plot.roles}:
            deleted = rows_deleted(bootstrap, topic, PARTITIONS)
            self._deleted.setdefault(topic, []).extend(deleted)
            self.outcome.counts["records deleted"] += len(deleted)

    def _count(self, spark: SparkSession, bootstrap: str, topic: str) -> None:
        files = {
            role.name: {line.sequence(role.unit): line.value for line in lines_of(self._files[role.name])}
            for role in self._plot.roles
            if role.topic == topic
        }
        await_decided(bootstrap, topic, PARTITIONS)
        records = named_records(spark, bootstrap, topic).cache()
        deleted = self._deleted.get(topic, [])
        verdict = check(files, [*deleted, *rows_of(records)])
        counted = how_often(records)
        left = sum(map(len, files.values())) - len(deleted)
        if counted != ({1: left} if left else {}):
            verdict.breaches.insert(0, f"Spark counts in {topic}, by how often a line is there: {counted}")
        records.unpersist()
        self.outcome.merge(Outcome(Counter(verdict.counts), shown(verdict.breaches)))


def play(directory: Path, seed: int, plot: Plot, spark: SparkSession) -> Outcome:
    """Run a story from a seed, in an empty directory."""
    directory.mkdir(parents=True, exist_ok=True)
    return Story(directory, seed, plot).play(spark)
