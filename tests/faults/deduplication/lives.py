"""An application's lives: it is started, killed with `kill -9` at a point of its life, and started again."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from random import Random

from tests.faults.deduplication.applications import GAVE_UP
from tests.faults.deduplication.task import Task
from tests.support.gateway_process import REPOSITORY
from tests.support.kafka_tools import java_command

JAVA_SOURCE = Path(__file__).with_name("LineApplication.java")
LIFE_TIMEOUT_S = 150.0
PROGRESS_TIMEOUT_S = 150.0
MOST_COUNTED = 600
OLDER = 0.4
"""The share of starts at a line before the one that the gateway reports."""
FROM_BEGINNING = 0.4
"""The share of these that begin at the first line."""
STAGES = ("starting", "asking", "asked", "sending", "flushing")
TRANSACTION_STAGES = ("begun", "inside", "inside", "inside", "committing", "committed")
MOST_TRANSACTIONS = 6
MOST_PATIENCE = 16
"""The largest factor for a transaction's timeout; it doubles each time that a library gives up for lack of
time, up to this."""
MOST_GIVEN_UP = 30
"""The number of times a library may give up in the lives of one application; more is a failure."""


class End(Enum):
    KILLED = "killed"
    ENDED = "ended by itself"
    GAVE_UP = "gave up"


@dataclass(frozen=True)
class Point:
    """The moment at which the test kills an application: the first word of a reported line (`kind`), and a
    count (`at`).
    """

    kind: str
    at: int

    @classmethod
    def drawn(cls, rng: Random, *, transactional: bool) -> Point:
        """Return a random moment at which the test kills the application."""
        chance = rng.random()
        if chance < 0.3:
            return cls(f"stage {rng.choice(STAGES)}", 1)
        if transactional and chance < 0.8:
            return cls(f"stage {rng.choice(TRANSACTION_STAGES)}", rng.randint(1, MOST_TRANSACTIONS))
        return cls(rng.choice(("sent", "acknowledged")), rng.randint(1, MOST_COUNTED))

    @classmethod
    def drawn_late(cls, rng: Random) -> Point:
        """Return a moment after an acknowledgement."""
        return cls("acknowledged", rng.randint(1, MOST_COUNTED))

    def is_reached(self, line: str, seen: Counter[str]) -> bool:
        if self.kind.startswith("stage"):
            return line == self.kind and seen[line] >= self.at
        word, _, count = line.partition(" ")
        return word == self.kind and int(count) >= self.at


class Progress:
    """The number of records acknowledged to all applications, and whether one of these has failed."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._acknowledged = 0
        self._failure: BaseException | None = None

    def add(self, count: int) -> None:
        with self._changed:
            self._acknowledged += count
            self._changed.notify_all()

    def fail(self, failure: BaseException) -> None:
        with self._changed:
            self._failure = self._failure or failure
            self._changed.notify_all()

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def await_further(self, count: int) -> None:
        """Return once `count` more records were acknowledged; raise the error of an application that failed."""
        with self._changed:
            wanted = self._acknowledged + count
            moved_on = self._changed.wait_for(
                lambda: self._acknowledged >= wanted or self._failure is not None, PROGRESS_TIMEOUT_S
            )
        self.check()
        assert moved_on, f"no {count} further acknowledged records within {PROGRESS_TIMEOUT_S} s"


@dataclass
class Application(threading.Thread):
    """The successive lives of one application: after enough kills, the last one runs to its end."""

    task: Task
    new_transactional_ids: bool
    rng: Random
    kills: int
    progress: Progress
    draw: Callable[[Random], Point]
    may_end: Callable[[], bool]
    directory: Path
    remembers: bool = True
    """Whether the gateway should know the application's last sequence id."""
    breaches: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        super().__init__(name=self.task.name, daemon=True)
        self._starts = 0
        self._given_up_in_a_row = 0
        self._known = 0
        self._has_ended = False
        self._process: subprocess.Popen[str] | None = None

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        try:
            self._live()
        except BaseException as failure:
            self.progress.fail(failure)

    def _live(self) -> None:
        end = End.KILLED
        killed = 0
        while not (end is End.ENDED and killed >= self.kills and self.may_end()):
            done = killed >= self.kills and self.may_end()
            point = None if done else self.draw(self.rng)
            end = self._one_life(point, self._believed(must_be_older=end is End.ENDED))
            killed += end is End.KILLED
            self._has_ended |= end is End.ENDED
            self._count(end, point)
        self._await_all_known()

    def _await_all_known(self) -> None:
        """Start the application once more to see that no line is left. A transaction may end a little later."""
        if not self.remembers:
            return
        for _ in range(MOST_GIVEN_UP):
            assert self._one_life(None, believed=1.0) is not End.KILLED
            if self._known >= self._least_in_the_end():
                return
        self.breaches.append(
            f"the gateway reports only {self._known} stored lines of {self.name}, which has sent its whole "
            "file"
        )

    def _least_in_the_end(self) -> int:
        """Return a sequence id that the gateway must know in the end.

        An application that places lines by key does not know which partitions get no line, so it may begin
        before the last lines.
        """
        count = len(Path(self.task.file).read_bytes().splitlines())
        return 1 if self.task.by_key else count

    def _count(self, end: End, point: Point | None) -> None:
        if end is End.KILLED:
            assert point is not None
            self.counts["applications killed"] += 1
            self.counts[f"killed at {point.kind.removeprefix('stage ')}"] += 1
        elif end is End.GAVE_UP:
            self.counts["libraries gave up"] += 1
            assert self.counts["libraries gave up"] <= MOST_GIVEN_UP, f"{self.name} gave up: {self._told()}"

    def _believed(self, *, must_be_older: bool) -> float:
        if not must_be_older and self.rng.random() >= OLDER:
            return 1.0
        return 0.0 if self.rng.random() < FROM_BEGINNING else self.rng.random()

    def _one_life(self, point: Point | None, believed: float) -> End:
        told = "where the gateway said" if believed == 1 else "from an older line"
        self.counts[f"starts {told}"] += 1
        patience = min(2**self._given_up_in_a_row, MOST_PATIENCE)
        timeout_ms = patience * self.task.transaction_timeout_ms
        task = replace(self.task, believed=believed, transaction_timeout_ms=timeout_ms)
        if self.new_transactional_ids:
            task = replace(task, transactional_id=f"{task.transactional_id}-{self._starts}")
        self._starts += 1
        with (self.directory / f"{self.name}.stderr").open("ab") as stderr:
            self._process = subprocess.Popen(
                self._command() + task.words(),
                cwd=REPOSITORY,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        end = self._watch(self._process, point)
        self._given_up_in_a_row = self._given_up_in_a_row + 1 if end is End.GAVE_UP else 0
        return end

    def _command(self) -> list[str]:
        if self.task.library == "jvm":
            return java_command(str(JAVA_SOURCE), heap="64m")
        return [sys.executable, "-m", "tests.faults.deduplication.applications"]

    def _watch(self, process: subprocess.Popen[str], point: Point | None) -> End:
        hung = threading.Event()

        def end_what_hangs() -> None:
            hung.set()
            process.kill()

        watchdog = threading.Timer(LIFE_TIMEOUT_S, end_what_hangs)
        watchdog.start()
        try:
            was_killed = self._read_until(process, point)
            status = process.wait()
        finally:
            watchdog.cancel()
            process.kill()
            process.wait()
        assert not hung.is_set(), f"{self.name} did not come to an end: {self._told()}"
        if was_killed:
            return End.KILLED
        assert status in {0, GAVE_UP}, f"{self.name} ended with {status}: {self._told()}"
        return End.ENDED if status == 0 else End.GAVE_UP

    def _read_until(self, process: subprocess.Popen[str], point: Point | None) -> bool:
        """Read the output; return whether the application was killed because it reached the point."""
        assert process.stdout is not None
        seen: Counter[str] = Counter()
        acknowledged = 0
        with process.stdout:
            for told in process.stdout:
                line = told.strip()
                seen[line] += 1
                if line.startswith("acknowledged "):
                    count = int(line.split()[1])
                    self.progress.add(count - acknowledged)
                    self.counts["records acknowledged"] += count - acknowledged
                    acknowledged = count
                elif line.startswith("from "):
                    self._compare_known(*map(int, line.split()[2:]))
                if point is not None and point.is_reached(line, seen):
                    process.kill()
                    return True
        return False

    def _compare_known(self, known: int, count: int) -> None:
        """Check that known sequence ids stay known, and that all are known once every line was acknowledged."""
        if not self.remembers:
            return
        least = self._known
        if self._has_ended and not self.task.by_key and not self.task.transactional_id:
            least = count
        if known < least:
            self.breaches.append(
                f"the gateway reports {known} stored lines of {self.name}; it has acknowledged or reported "
                f"{least} before"
            )
        self._known = known
        self.counts["answers to where it was"] += 1

    def _told(self) -> str:
        return (self.directory / f"{self.name}.stderr").read_text(errors="replace")[-2000:]

    def give_up(self) -> None:
        """Kill the application if it runs."""
        self.kills = 0
        if self._process is not None:
            self._process.kill()


def await_all(applications: list[Application], progress: Progress, timeout_s: float) -> None:
    """Return once every application has ended by itself; raise the error of one that failed."""
    deadline = time.monotonic() + timeout_s
    for application in applications:
        while application.is_alive():
            progress.check()
            assert time.monotonic() < deadline, f"{application.name} did not come to an end in {timeout_s} s"
            application.join(0.2)
    progress.check()
