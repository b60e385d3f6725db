"""Stops all workers of a data directory at one moment, so that a backup has the state of that moment.

A transaction, its offsets and its coordinator may be in different workers. So the supervisor leads all
workers through a round, and goes on to the next step when all have reported the last one:

    prepare   a worker waits until no compacted segment takes the place of others, and keeps deleted files
    hold      it notes where its logs end, and lets nothing run in its event loop
    go        all stand still: the supervisor notes where the metadata ends. Each worker runs again, and a
              thread of it links its share (`seqgate.log.staging`)
    end       all shares are linked, or the round has failed

A worker that stands still goes on by itself after a limit, and reports that: clients wait for that limit at
most. It has then read no `go`, so the round begins again, or fails. When a worker dies, the round begins
again, too, unless the command has asked the dead one. The command takes a refusal as that of all workers, so
MOST_HOLDS bounds how often they are held for one command, however many they are.
The copy lacks the messages that were under way between workers at that moment, as after a crash of all.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from seqgate.gateway.workers.link import RoundEnded, RoundReport, RoundStep, Step
from seqgate.gateway.workers.shared_directory import SharedDirectory
from seqgate.gateway.workers.worker_process import WorkerProcess
from seqgate.log import IncompatibleFormat, LogError

logger = logging.getLogger(__name__)

START_LIMIT_S: Final = 60.0
"""How long a round waits until all workers serve; then it is refused."""
PREPARE_LIMIT_S: Final = 60.0
"""How long the workers have for the swaps of compaction that have begun; then the round fails."""
HOLD_LIMIT_S: Final = 2.0
"""How long a worker stands still for the others; then it goes on, and the round begins again."""
MOST_HOLDS: Final = 3
"""How often the workers are held for one command, because one was late or died; then the backup fails."""
AGAIN_LIMIT_S: Final = 60.0
"""Time since the command asked in which a round begins again, so that all end while the command waits."""
LINK_LIMIT_S: Final = 400.0
"""How long the workers have to link their shares; then the round fails."""


@dataclass(slots=True)
class _Round:
    number: int
    asker: WorkerProcess
    until_s: float
    asked_s: float
    """When the command asked."""
    tries: int
    """Which round for the command this is."""
    members: list[WorkerProcess] = field(default_factory=list)
    awaited: set[WorkerProcess] = field(default_factory=set)
    """The workers that have not reported the step."""
    step: Step | None = None
    """The last step that the workers were told; None until all serve."""
    taken_ms: int = 0
    failure: str | None = None
    may_retry: bool = False
    """Whether another round may succeed where this one has failed."""


class StagingRounds:
    """The rounds of one supervisor, at most one at a time. All methods return at once."""

    def __init__(
        self,
        shared: SharedDirectory,
        workers: Mapping[int, WorkerProcess],
        numbers: Collection[int],
        timeout_s: float,
    ) -> None:
        """Take the directory; `workers` are those whose processes live, of the `numbers`. A worker that gives
        no sign of life for `timeout_s` is killed.
        """
        self._shared = shared
        self._workers = workers
        self._numbers = numbers
        self._hold_s = min(HOLD_LIMIT_S, timeout_s / 2)
        self._round: _Round | None = None
        self._last_number = 0

    @property
    def is_under_way(self) -> bool:
        """Whether a round is under way, so that no worker should be stopped."""
        return self._round is not None

    def begin(self, asker: WorkerProcess, now_s: float) -> None:
        """Begin a round for a worker, or refuse it while there is another one."""
        if self._round is not None:
            asker.send(RoundEnded(0, "another backup of this gateway begins; try again"))
        else:
            self._begin(asker, now_s, asked_s=now_s, tries=1)

    def _begin(self, asker: WorkerProcess, now_s: float, asked_s: float, tries: int) -> None:
        self._last_number += 1
        self._round = _Round(self._last_number, asker, now_s + START_LIMIT_S, asked_s, tries)

    def take(self, worker: WorkerProcess, report: RoundReport, now_s: float) -> None:
        """Note what a worker reports; after the last one, tell all the next step. A worker that has reported
        a hold may report that it could not wait any longer.
        """
        current = self._round
        if current is None or report.number != current.number:
            return
        is_awaited = worker in current.awaited
        current.awaited.discard(worker)
        if report.failure is not None:
            self._fail_late(current, f"worker {worker.number}: {report.failure}", now_s)
        elif is_awaited and not current.awaited:
            self._advance(current, now_s)

    def run_due(self, now_s: float) -> None:
        """Begin what waits for workers, and fail what waits for the dead or too long."""
        current = self._round
        if current is None:
            return
        dead = [member for member in (current.asker, *current.members) if not self._lives(member)]
        late = _named(current.awaited)
        if dead:
            current.awaited.difference_update(dead)
            self._fail(current, f"worker {dead[0].number} has ended; try again", now_s, may_retry=True)
        elif current.step is None and self._all_serve():
            current.members = list(self._workers.values())
            self._advance(current, now_s)
        elif now_s > current.until_s:
            why = "not all workers serve" if current.step is None else f"{late} took too long"
            if current.step == "go":
                current.awaited.clear()
            self._fail_late(current, f"{why}; try again", now_s)

    def _advance(self, current: _Round, now_s: float) -> None:
        try:
            if current.step is None:
                self._tell(current, "prepare", now_s + PREPARE_LIMIT_S)
            elif current.step == "prepare":
                # No thread links anything now: every worker holds the lock under which it does.
                self._shared.begin_staging()
                self._tell(current, "hold", now_s + self._hold_s)
            elif current.step == "hold":
                current.taken_ms, cut = self._shared.capture_metadata()
                held_ms = (now_s - current.until_s + self._hold_s) * 1000
                logger.info("backup: the workers have stood still for %.1f ms", held_ms)
                self._tell(current, "go", now_s + LINK_LIMIT_S)
                self._shared.stage_metadata(cut)
            else:
                self._end(current, now_s)
        except (LogError, IncompatibleFormat, OSError) as error:
            self._fail(current, str(error), now_s)

    def _tell(self, current: _Round, step: Step, until_s: float) -> None:
        current.step, current.until_s = step, until_s
        current.awaited = set(current.members)
        for member in current.members:
            member.send(RoundStep(current.number, step, self._hold_s))

    def _fail_late(self, current: _Round, why: str, now_s: float) -> None:
        """Fail the round for a reason which, in a hold, is only that others were late."""
        is_late = current.step == "hold" and bool(current.awaited)
        if is_late:
            why = (
                f"the workers did not stand still at one moment within {self._hold_s:g} s, because "
                f"{_named(current.awaited)} had other work; try again"
            )
        self._fail(current, why, now_s, may_retry=is_late)

    def _fail(self, current: _Round, why: str, now_s: float, *, may_retry: bool = False) -> None:
        """End the round with a reason, once no worker links any more."""
        if current.failure is None:
            current.failure, current.may_retry = why, may_retry
        if current.step != "go" or not current.awaited:
            self._end(current, now_s)

    def _end(self, current: _Round, now_s: float) -> None:
        """Let all go on; begin another round, or tell the asker how this one has ended."""
        self._round = None
        is_early = current.tries < MOST_HOLDS and now_s - current.asked_s <= AGAIN_LIMIT_S
        begins_again = current.may_retry and is_early and self._lives(current.asker)
        if current.failure is not None:
            again = "; they are held again" if begins_again else ""
            logger.warning("the workers were not staged for a backup%s: %s", again, current.failure)
        for member in filter(self._lives, current.members):
            member.send(RoundStep(current.number, "end"))
        if begins_again:
            self._begin(current.asker, now_s, current.asked_s, current.tries + 1)
        elif self._lives(current.asker):
            current.asker.send(RoundEnded(current.taken_ms, current.failure))

    def _all_serve(self) -> bool:
        workers = self._workers.values()
        return len(workers) == len(self._numbers) and all(worker.ready is not None for worker in workers)

    def _lives(self, member: WorkerProcess) -> bool:
        return self._workers.get(member.number) is member


def _named(workers: Collection[WorkerProcess]) -> str:
    return ", ".join(f"worker {number}" for number in sorted(worker.number for worker in workers))
