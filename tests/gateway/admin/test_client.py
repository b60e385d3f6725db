"""Lists longer than a page arrive complete over the control socket."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from seqgate.gateway.admin import client
from seqgate.gateway.admin.backup.command import StageBackupRequest
from seqgate.gateway.admin.client import RESTART_S, AskedWorkers, Client, ask, joined, places, summed
from seqgate.gateway.admin.groups.listing import GroupPage, ListGroupsRequest
from seqgate.gateway.admin.names import NamesRequest
from seqgate.gateway.admin.pids import ListBlocksRequest
from seqgate.gateway.admin.producers import ListProducersRequest, ProducerCounters, ProducerPage, ProducerRow
from seqgate.gateway.admin.request import (
    PAGE_ROWS,
    RUNNING,
    SOCKET_NAME,
    STOPPED,
    ControlAnswer,
    ControlError,
    Elsewhere,
    NoAnswer,
    NotRunning,
    short_path,
)
from seqgate.gateway.admin.server import ControlServer
from seqgate.gateway.admin.status import StatusRequest
from seqgate.gateway.admin.transactions.list_and_describe import ListTransactionsRequest, TransactionPage
from seqgate.gateway.cluster.cache.local_caches import begin_caches, cache_of
from seqgate.gateway.config import load_config
from seqgate.gateway.runtime.topics.producer_ids import EmbeddedBlockStore
from seqgate.log.sharing import WORKERS
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.log.support import batch

MANY = 2 * PAGE_ROWS + 500


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    """A node with a control socket."""
    async with open_node(tmp_path) as opened:
        control = ControlServer(opened.services, tmp_path)
        assert await control.start()
        yield opened
        await control.stop()


def test_a_gateway_that_does_not_answer_is_named_while_a_command_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_SLOW_S", 0)
    stopped, said = f"the gateway on {tmp_path} (pid {os.getpid()})", threading.Event()
    told: list[str] = []

    def show(note: str) -> None:
        told.append(note)
        said.set()

    monkeypatch.setattr(client, "_show_once", show)
    with socket.socket(socket.AF_UNIX) as listener, short_path(tmp_path / SOCKET_NAME) as path:
        listener.bind(path)
        listener.listen()

        def hang_up() -> None:
            connection, _ = listener.accept()
            with connection:
                said.wait()

        server = threading.Thread(target=hang_up)
        server.start()
        with pytest.raises(NoAnswer, match="hung up"):
            ask(tmp_path, StatusRequest())
        server.join()
        with pytest.raises(NoAnswer) as failed:
            Client(tmp_path, load_config, timeout_s=0.01).ask(StatusRequest())
    assert told[0] == f"{stopped} has not answered yet; waiting"
    assert str(failed.value) == f"{stopped} did not answer within 0.01 s"


async def test_blocks_of_a_running_gateway(node: Node, tmp_path: Path) -> None:
    store = EmbeddedBlockStore(node.services.topics.metadata_log, 0)
    await asyncio.gather(*(store.claim(10, "loader", NOW_MS) for _ in range(MANY)))
    page = await asyncio.to_thread(ask, tmp_path, ListBlocksRequest())
    rows = [row.first_producer_id for row in page.blocks]
    assert rows == list(range(0, 10 * MANY, 10))
    assert page.total == MANY
    latest = await asyncio.to_thread(ask, tmp_path, ListBlocksRequest(MANY - 3))
    assert [row.first_producer_id for row in latest.blocks] == rows[-3:]


async def test_producers_of_a_running_gateway(node: Node, tmp_path: Path) -> None:
    for topic in ("a", "b"):
        await create(node, topic)
        partition = node.services.partitions.registry.get(topic, 0)
        assert partition is not None
        for producer_id in range(MANY):
            partition.append(batch(producer_id=producer_id, base_sequence=0), NOW_MS)
    page = await asyncio.to_thread(ask, tmp_path, ListProducersRequest())
    rows = [(row.topic, row.producer_id) for row in page.producers]
    assert rows == [(topic, producer_id) for topic in ("a", "b") for producer_id in range(MANY)]
    assert page.complete


async def test_the_data_directory_answers_where_no_gateway_runs(tmp_path: Path) -> None:
    client = Client(tmp_path, lambda: load_config(overrides=[f"log.dirs={tmp_path}"]))
    async with open_node(tmp_path) as node:
        control = ControlServer(node.services, tmp_path)
        await control.start()
        gateway, page = await asyncio.to_thread(client.ask_running_or_data_directory, NamesRequest())
        assert (gateway, page.names, page.counters is None) == (RUNNING, [], False)
        await control.stop()
    gateway, page = client.ask_running_or_data_directory(NamesRequest())
    assert (gateway, page.names, page.counters) == (STOPPED, [], None)
    with pytest.raises(ControlError, match="limit must be between 1 and 10000, not 0"):
        client.ask_running_or_data_directory(NamesRequest(limit=0))
    with pytest.raises(ControlError, match="only a running gateway can answer status"):
        client.ask_running_or_data_directory(StatusRequest())


def test_names_that_are_copied_for_a_quick_start_stay_the_same() -> None:
    assert client.WORKERS == WORKERS


@pytest.mark.parametrize("kind", ["one process", "workers", "workers of a bucket"])
def test_where_no_gateway_runs_the_data_directory_is_named(tmp_path: Path, kind: str) -> None:
    if kind == "workers":
        (tmp_path / WORKERS / "1").mkdir(parents=True)
    elif kind == "workers of a bucket":
        begin_caches(tmp_path, 1)
        cache_of(tmp_path, 1).mkdir()
    with pytest.raises(NotRunning) as told:
        ask(tmp_path, StatusRequest())
    assert str(told.value) == f"no gateway is running on {tmp_path}"


# Several workers: who is asked, and who is waited for.


PLACES = [Path("workers") / str(number) for number in (1, 2)]
GONE = NotRunning("nobody is there")
SILENT = NoAnswer("the gateway did not answer within 40 s")
OTHER = Elsewhere("t-0 is led by broker 2")
REFUSAL = ControlError("t-0 is not offline")


class Scene:
    """Workers with one answer after another; the last one stays. Time passes only in pauses."""

    def __init__(self, *answers: list[int | ControlError]) -> None:
        self.answers = dict(zip(PLACES, answers, strict=True))
        self.now_s = 0.0
        self.workers = AskedWorkers(PLACES, self.is_there, now_s=lambda: self.now_s, sleep=self.sleep)

    def sleep(self, pause_s: float) -> None:
        self.now_s += pause_s
        for answers in self.answers.values():
            if len(answers) > 1:
                answers.pop(0)

    def is_there(self, place: Path) -> bool:
        return not isinstance(self.answers[place][0], NotRunning)

    def ask_at(self, place: Path) -> int:
        answer = self.answers[place][0]
        if isinstance(answer, ControlError):
            raise answer
        return answer

    def first(self, *, is_final: bool = False) -> int:
        return self.workers.first(self.ask_at, is_final=is_final)

    def all(self) -> tuple[list[int], list[str]]:
        return self.workers.all(self.ask_at)


def test_a_worker_that_is_being_started_again_is_waited_for() -> None:
    assert Scene([GONE, GONE, 1], [2]).first() == 1
    assert Scene([1], [GONE, GONE, 2]).all() == ([1, 2], [])


def test_nobody_is_waited_for_where_none_runs() -> None:
    scene = Scene([GONE], [GONE])
    for way in (scene.first, scene.all):
        with pytest.raises(NotRunning):
            way()
    assert scene.now_s == 0


def test_a_worker_that_stays_away_is_named() -> None:
    scene = Scene([1], [GONE])
    assert scene.all() == ([1], ["the worker on node 2 gave no answer: it is not running now"])
    assert scene.now_s == pytest.approx(RESTART_S, abs=0.1)
    assert Scene([GONE], [2]).first() == 2


def test_a_worker_that_does_not_answer_is_named() -> None:
    assert Scene([SILENT], [2]).all() == ([2], [f"the worker on node 1 gave no answer: {SILENT}"])


def test_what_may_have_been_done_is_not_asked_of_another_worker() -> None:
    with pytest.raises(NoAnswer, match=r"the worker on node 1 gave no answer: .* within 40 s"):
        Scene([SILENT], [2]).first()


def test_a_worker_refuses_what_another_one_knows() -> None:
    assert Scene([OTHER], [2]).first() == 2
    assert Scene([OTHER], [2]).all() == ([2], [])


def test_a_refusal_of_what_one_does_for_all_is_final() -> None:
    with pytest.raises(ControlError, match="t-0 is not offline"):
        Scene([REFUSAL], [2]).first(is_final=True)
    assert Scene([GONE], [2]).first(is_final=True) == 2


def test_a_worker_refuses_a_backup_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def refuse(place: Path, *_: object) -> bytes:
        asked.append(place.name)
        return msgspec.json.encode(ControlAnswer(error="worker 2 had other work"))

    monkeypatch.setattr(client, "_exchange", refuse)
    for number in range(3):
        (tmp_path / WORKERS / str(number)).mkdir(parents=True)
    with pytest.raises(ControlError, match="had other work"):
        ask(tmp_path, StageBackupRequest())
    assert asked == ["0"], "no other worker may hold the producers once more"


def test_any_other_refusal_is_told() -> None:
    assert Scene([REFUSAL], [2]).all() == ([2], [f"the worker on node 1 gave no answer: {REFUSAL}"])


@pytest.mark.parametrize("answers", [([OTHER], [REFUSAL]), ([REFUSAL], [OTHER]), ([REFUSAL], [REFUSAL])])
def test_the_refusal_is_that_of_the_worker_that_knows(answers: tuple[list[ControlError], ...]) -> None:
    for way in (Scene(*map(list, answers)).first, Scene(*map(list, answers)).all):  # type: ignore[arg-type]
        with pytest.raises(ControlError, match="t-0 is not offline"):
            way()


def test_the_one_that_knows_is_away() -> None:
    with pytest.raises(NoAnswer, match=r"^the worker on node 2 gave no answer: it is not running now$"):
        Scene([OTHER], [GONE]).first()
    with pytest.raises(NoAnswer, match=r"^t-0 is not offline; the worker on node 2 gave no answer: it is"):
        Scene([REFUSAL], [GONE]).first()


def test_all_refuse_alike() -> None:
    with pytest.raises(Elsewhere, match="broker 2"):
        Scene([OTHER], [OTHER]).first()


# The answers of several workers, joined.


EARLIER, COUNTERS = ProducerCounters(0, 1, 1, 1, 1), ProducerCounters(1, 2, 3, 4, 5)


def row(producer_id: int) -> ProducerRow:
    return ProducerRow("t", 0, producer_id, 0, 0, 0, 0, 0, -1, 0, 1)


def test_counters_are_summed_and_rows_are_joined() -> None:
    page = joined(
        ListProducersRequest(),
        [
            [ProducerPage([row(1)], False, EARLIER), ProducerPage([row(2)], True, COUNTERS)],
            [ProducerPage([row(3)], True, COUNTERS)],
        ],
    )
    assert page == ProducerPage([row(1), row(2), row(3)], True, ProducerCounters(2, 4, 6, 8, 10))


def test_partitions_elsewhere_are_led_by_no_worker() -> None:
    found = [[TransactionPage([], True, [], [3, 1, 2])], [TransactionPage([], True, [], [0, 3])]]
    assert joined(ListTransactionsRequest(), found).partitions_elsewhere == [3]


def test_offline_partitions_are_united() -> None:
    page = joined(ListGroupsRequest(), [[GroupPage([], True, [3, 1])], [GroupPage([], True, [1, 2])]])
    assert page.offline_partitions == [1, 2, 3]


def test_a_missing_count_makes_the_sum_missing() -> None:
    assert summed([COUNTERS, None]) is None
    assert summed([1, 2]) == 3


def test_the_places_of_workers(tmp_path: Path) -> None:
    assert places(tmp_path) == [tmp_path]
    for name in ("10", "2", "metadata"):
        (tmp_path / "workers" / name).mkdir(parents=True)
    assert [place.name for place in places(tmp_path)] == ["2", "10"]
