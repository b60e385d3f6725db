"""All workers stand still at one moment, or nothing is staged. No process runs: the test holds the other ends
of the supervisor's streams, and of a worker's.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from seqgate.gateway.config import load_config
from seqgate.gateway.config.workers import worker_config
from seqgate.gateway.runtime.upkeep.backup_staging import StagingRefused
from seqgate.gateway.workers.directory_storage import DirectoryStorage
from seqgate.gateway.workers.link import (
    Alive,
    CommittedChange,
    Frames,
    FromWorker,
    Ping,
    Ready,
    RoundEnded,
    RoundPart,
    RoundReport,
    RoundStep,
    RoundWanted,
    SupervisorLink,
    WorkerRounds,
    encode,
    from_supervisor,
    from_worker,
)
from seqgate.gateway.workers.shared_directory import SharedDirectory
from seqgate.gateway.workers.staging_rounds import (
    AGAIN_LIMIT_S,
    HOLD_LIMIT_S,
    LINK_LIMIT_S,
    MOST_HOLDS,
    PREPARE_LIMIT_S,
    START_LIMIT_S,
)
from seqgate.gateway.workers.worker_process import WorkerProcess
from seqgate.log import Storage
from seqgate.log.staging import STAGING, data_path
from tests.gateway.workers.test_metadata_writer import topic

NOW_MS = 1_000


class Worker(WorkerProcess):
    """A worker as its supervisor sees it, and the other end of the stream."""

    def __init__(self, number: int) -> None:
        ours, self._other = socket.socketpair()
        super().__init__(number, number, os.getpid(), ours, 0.0)
        self.ready = Ready({}, [])
        self._other.setblocking(False)
        self._told = Frames(from_supervisor)

    def told(self) -> list[object]:
        """Return what the supervisor has said since the last call."""
        try:
            return list(self._told.feed(self._other.recv(1 << 16)))
        except BlockingIOError:
            return []

    def close(self) -> None:
        super().close()
        self._other.close()


class Scene:
    """A data directory of two workers, which report what the test says at the time that it says."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.shared = SharedDirectory(Storage(), root, 1, lambda: NOW_MS)
        config = load_config(None, {}, [f"log.dirs={root}", "seqgate.workers=2"])
        configs = {number: worker_config(config, number) for number in (1, 2)}
        self.storage = DirectoryStorage(configs, self.shared, lambda *_: 0)
        self.workers: dict[int, WorkerProcess] = {}
        self.storage.begin(self.workers)
        self.one, self.two = Worker(1), Worker(2)
        self.workers |= {1: self.one, 2: self.two}
        self.number = 0

    def begin(self, now_s: float = 0.0) -> None:
        """Let worker 1 want a round, and expect that it begins."""
        self.storage.take(self.one, RoundWanted(), now_s)
        self.run_due(now_s)
        self.expect_prepare()

    def expect_prepare(self) -> None:
        self.number += 1
        assert self.one.told() == self.two.told() == [RoundStep(self.number, "prepare", HOLD_LIMIT_S)]

    def report(self, *workers: Worker, now_s: float = 0.0, failure: str | None = None) -> None:
        for worker in workers:
            self.storage.take(worker, RoundReport(self.number, failure), now_s)

    def run_due(self, now_s: float) -> None:
        self.storage.run_due(now_s)

    def reach(self, step: str) -> None:
        """Let both workers report until they are told this step."""
        self.begin()
        self.pass_to(step)

    def pass_to(self, step: str) -> None:
        for reached in ("prepare", "hold", "go"):
            if reached != step:
                self.report(self.one, self.two)
                continue
            self.told()
            return

    def told(self) -> tuple[list[object], list[object]]:
        return self.one.told(), self.two.told()

    def expect_end(self, taken_ms: int = 0, failure: str | None = None) -> None:
        end = RoundStep(self.number, "end")
        assert self.told() == ([end, RoundEnded(taken_ms, failure)], [end])

    def close(self) -> None:
        for worker in (self.one, self.two):
            worker.close()
        self.shared.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.close()


def test_each_step_waits_for_all_workers(scene: Scene) -> None:
    scene.begin()
    for step in ("hold", "go"):
        scene.report(scene.one)
        assert scene.told() == ([], [])
        scene.report(scene.two)
        told = [RoundStep(scene.number, step, HOLD_LIMIT_S)]
        assert scene.told() == (told, told)
    scene.report(scene.one, scene.two)
    scene.expect_end(NOW_MS)


def test_the_metadata_is_that_of_the_moment_at_which_all_stand_still(scene: Scene) -> None:
    scene.reach("hold")
    scene.shared.metadata.change([topic(1)])
    scene.report(scene.one, scene.two)
    staged = Path(data_path(str(scene.root)), "__cluster_metadata-0", f"{0:020d}.log")
    size_bytes = staged.stat().st_size
    scene.shared.metadata.change([topic(2)])
    assert staged.stat().st_size > size_bytes, "the files are linked, not copied"
    share = (scene.root / STAGING / "metadata.share").read_text()
    assert str(size_bytes) in share


@pytest.mark.parametrize("late", ["never held", "waits no longer"])
def test_a_worker_that_is_late_is_held_again(scene: Scene, late: str) -> None:
    scene.reach("hold")
    for count in range(1, MOST_HOLDS + 1):
        if late == "never held":
            scene.report(scene.one)
            scene.run_due(HOLD_LIMIT_S)
            assert scene.told() == ([], [])
            scene.run_due(HOLD_LIMIT_S + 0.1)
        else:
            scene.report(scene.one)
            scene.report(scene.one, failure="it stood still for 2 s")
        if count == MOST_HOLDS:
            break
        end = [RoundStep(scene.number, "end")]
        assert scene.told() == (end, end)
        scene.run_due(0.0)
        scene.expect_prepare()
        scene.report(scene.two)  # worker 2 had other work, and does now what it was asked to do first
        scene.report(scene.one)
        scene.told()
    scene.expect_end(
        failure="the workers did not stand still at one moment within 2 s, because worker 2 had other work; "
        "try again"
    )
    scene.begin()


def test_a_hold_that_ran_out_before_go_came_fails_the_round(scene: Scene) -> None:
    scene.reach("go")
    scene.report(scene.one, failure="it stood still for 2 s")
    assert scene.told() == ([], []), "worker 2 still links"
    scene.report(scene.two)
    scene.expect_end(NOW_MS, "worker 1: it stood still for 2 s")


@pytest.mark.parametrize("step", ["prepare", "hold", "go"])
def test_after_a_death_the_workers_are_held_again_three_times_in_all(scene: Scene, step: str) -> None:
    for count in range(1, MOST_HOLDS + 1):
        if count == 1:
            scene.reach(step)
        else:
            scene.run_due(float(count))
            assert scene.one.told() == [], "worker 2 does not serve yet"
            scene.two.close()
            scene.two = Worker(2)
            scene.workers[2] = scene.two
            scene.run_due(float(count))
            scene.expect_prepare()
            scene.pass_to(step)
        del scene.workers[2]
        scene.run_due(float(count))
        if step == "go":
            assert scene.one.told() == [], "worker 1 still links"
            scene.report(scene.one, now_s=float(count))
        end = RoundStep(scene.number, "end")
        if count < MOST_HOLDS:
            assert scene.one.told() == [end]
    failed = RoundEnded(NOW_MS if step == "go" else 0, "worker 2 has ended; try again")
    assert scene.one.told() == [end, failed]
    assert scene.two.told() == []


def test_a_round_that_fails_after_a_minute_is_not_begun_again(scene: Scene) -> None:
    scene.reach("go")
    del scene.workers[2]
    scene.run_due(AGAIN_LIMIT_S + 0.1)
    scene.report(scene.one, now_s=AGAIN_LIMIT_S + 0.1)
    failed = RoundEnded(NOW_MS, "worker 2 has ended; try again")
    assert scene.one.told() == [RoundStep(scene.number, "end"), failed]


def test_nobody_is_told_of_a_round_whose_asker_has_died(scene: Scene) -> None:
    scene.reach("hold")
    del scene.workers[1]
    scene.run_due(0.0)
    assert scene.told() == ([], [RoundStep(scene.number, "end")])


@pytest.mark.parametrize(
    ("step", "limit_s", "why"),
    [("prepare", PREPARE_LIMIT_S, "worker 1, worker 2"), ("go", LINK_LIMIT_S, "worker 1, worker 2")],
)
def test_each_step_has_a_limit(scene: Scene, step: str, limit_s: float, why: str) -> None:
    scene.reach(step)
    scene.run_due(limit_s)
    assert scene.told() == ([], [])
    scene.run_due(limit_s + 0.1)
    scene.expect_end(NOW_MS if step == "go" else 0, f"{why} took too long; try again")
    scene.report(scene.one, scene.two)
    assert scene.told() == ([], [])


def test_a_round_waits_until_all_workers_serve(scene: Scene) -> None:
    scene.two.ready = None
    scene.storage.take(scene.one, RoundWanted(), 0.0)
    scene.run_due(START_LIMIT_S)
    assert scene.told() == ([], [])
    scene.storage.take(scene.two, RoundWanted(), 0.0)
    assert scene.two.told() == [RoundEnded(0, "another backup of this gateway begins; try again")]
    scene.run_due(START_LIMIT_S + 0.1)
    assert scene.told() == ([RoundEnded(0, "not all workers serve; try again")], [])
    scene.number += 1
    scene.storage.take(scene.one, RoundWanted(), 0.0)
    scene.two.ready = scene.one.ready
    scene.run_due(1.0)
    scene.expect_prepare()


def test_what_can_not_be_linked_ends_the_round(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(Storage, "link", refuse)
    scene.begin()
    scene.report(scene.one, scene.two)
    ((_, ended), _) = scene.told()
    assert isinstance(ended, RoundEnded)
    assert "no hard links" in str(ended.failure)


# A worker's part.


class Other:
    """The supervisor's end of a worker's stream, in a thread that answers while the worker stands still."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._frames = Frames(from_worker)
        self.heard: list[FromWorker] = []

    def hear(self, count: int) -> list[FromWorker]:
        """Wait until the worker has said as much."""
        while len(self.heard) < count:
            self.heard += self._frames.feed(self.connection.recv(1 << 16))
        return self.heard

    def say(self, *messages: RoundStep | RoundEnded | Ping | CommittedChange) -> None:
        self.connection.sendall(b"".join(map(encode, messages)))


@asynccontextmanager
async def worker_and_supervisor() -> AsyncIterator[
    tuple[Other, SupervisorLink, WorkerRounds, list[RoundPart]]
]:
    ours, theirs = socket.socketpair()
    parts: list[RoundPart] = []
    with ours, theirs:

        def take(message: RoundStep | RoundEnded) -> None:
            part = rounds.take(message)
            parts.extend([] if part is None else [part])

        link = await SupervisorLink.open(theirs, when_staging=take)
        rounds = WorkerRounds(link)
        yield Other(ours), link, rounds, parts
        link.close()


async def held(other: Other, parts: Sequence[RoundPart], hold_s: float) -> RoundPart:
    """Return a part that is to capture."""
    other.say(RoundStep(7, "prepare"))
    while not parts:
        await asyncio.sleep(0)
    prepared = asyncio.create_task(parts[0].prepared())
    await asyncio.to_thread(other.hear, 1)
    other.say(RoundStep(7, "hold", hold_s))
    await prepared
    return parts[0]


async def test_nothing_else_runs_until_all_stand_still() -> None:
    async with worker_and_supervisor() as (other, link, _, parts):
        part = await held(other, parts, hold_s=600.0)
        ran: list[str] = []
        asyncio.get_running_loop().call_soon(ran.append, "a request")

        def supervise() -> None:
            assert other.hear(2) == [RoundReport(7), RoundReport(7)]
            other.say(Ping(), CommittedChange(5, [b"x"]))
            ran.append("go")
            other.say(RoundStep(7, "go"), CommittedChange(6, [b"y"]))

        supervising = threading.Thread(target=supervise)
        supervising.start()
        part.hold()
        assert ran == ["go"]
        assert [change.end_offset for change in link.changes][:1] == [5]
        linked = asyncio.create_task(part.linked(None))
        assert (await asyncio.to_thread(other.hear, 4))[2:] == [Alive(), RoundReport(7)]
        assert ran == ["go", "a request"]
        assert not linked.done()
        other.say(RoundStep(6, "end"), RoundStep(7, "end"))
        await linked
        assert [change.end_offset for change in link.changes] == [5, 6]
        supervising.join()


@pytest.mark.parametrize("answer", ["none", "end"])
async def test_a_hold_that_ends_otherwise_is_no_moment_of_all(answer: str) -> None:
    async with worker_and_supervisor() as (other, _, rounds, parts):
        part = await held(other, parts, hold_s=0.05 if answer == "none" else 600.0)
        if answer == "end":
            other.say(RoundStep(7, "end"))
        with pytest.raises(StagingRefused, match="and the others did not"):
            part.hold()
        failed = asyncio.create_task(part.linked("late"))
        assert (await asyncio.to_thread(other.hear, 3))[-1] == RoundReport(7, "late")
        other.say(RoundStep(7, "end"))
        await failed
        wanted = asyncio.create_task(rounds.stage())
        assert (await asyncio.to_thread(other.hear, 4))[-1] == RoundWanted()
        other.say(RoundEnded(9))
        assert await wanted == 9


async def test_a_worker_that_prepares_too_late_is_told_so() -> None:
    async with worker_and_supervisor() as (other, _, rounds, parts):
        other.say(RoundStep(7, "prepare"), RoundStep(7, "end"))
        while not parts:
            await asyncio.sleep(0)
        with pytest.raises(StagingRefused, match="given up"):
            await parts[0].prepared()
        await parts[0].linked("given up")
        wanted = asyncio.create_task(rounds.stage())
        await asyncio.to_thread(other.hear, 3)
        other.say(RoundEnded(0, "worker 2 has ended; try again"))
        with pytest.raises(StagingRefused, match="worker 2 has ended"):
            await wanted
