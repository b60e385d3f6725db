from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.admin.alter_partition_reassignments import reassign
from seqgate.gateway.handlers.admin.brokers import drain_broker
from seqgate.gateway.metadata.decision import Decision
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.leadership import move_all, order_move, planned_moves
from seqgate.gateway.runtime.partitions.partition import HandedOver
from seqgate.gateway.runtime.topics import partition_moves
from seqgate.gateway.runtime.topics.partition_moves import PartitionMoves
from seqgate.gateway.runtime.upkeep.name_keeping import may_know_names
from seqgate.log import LogDirectory, StorageFailed
from tests.gateway.handlers.asking import Asking
from tests.gateway.handlers.support import NOW_MS, Node
from tests.gateway.handlers.two_brokers import (
    NOT_LEADER,
    OTHER,
    THIS,
    TOPIC_ID,
    broker,
    commit,
    fetch,
    node_of_two,
    partition,
    produce,
)
from tests.support.batches import Batch, records

PATIENCE_S = 120.0


class Uploads:
    """The uploads of the histories of partitions; each waits for `may_end`."""

    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory
        self.kept: list[int] = []
        self.uploaded: list[tuple[int, int]] = []
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.error: Exception | None = None

    async def hand_over(self, topic_id: uuid.UUID, index: int) -> None:
        (log,) = (log for log in self._directory.logs() if (log.topic_id, log.partition) == (topic_id, index))
        self.begun.set()
        await self.may_end.wait()
        if self.error is not None:
            raise self.error
        assert log.recovery_point == log.log_end_offset
        self.uploaded.append((index, log.log_end_offset))

    def keep(self, topic_id: uuid.UUID, index: int) -> None:
        self.kept.append(index)


@asynccontextmanager
async def moves(path: Path) -> AsyncIterator[tuple[Node, PartitionMoves, Uploads]]:
    """Open a node of two whose moves are not started; it spreads leaders at once after a join."""
    async with node_of_two(path) as node:
        services = node.services
        uploads = Uploads(services.partitions.log_directory)
        config = services.node.config
        made = PartitionMoves(
            config,
            services.topics.metadata_log,
            services.node.brokers,
            services.partitions.registry,
            services.partitions.flusher,
            uploads,
            lambda: 0.0,
        )
        yield node, made, uploads
        await made.stop()


def leader(node: Node, index: int = 0) -> tuple[int, int]:
    image = node.services.topics.metadata_log.image.topics_by_id[TOPIC_ID].partitions[index]
    return image.leader, image.leader_epoch


async def until(node: Node, condition: Callable[[], bool]) -> None:
    assert await node.services.topics.waiters.until(lambda _: condition(), PATIENCE_S)


async def test_an_ordered_move_hands_the_partition_over(tmp_path: Path) -> None:
    async with moves(tmp_path) as (node, made, uploads):
        await produce(node, 9, 0)
        made.start()
        await node.services.topics.metadata_log.commit(lambda image: order_move(image, TOPIC_ID, 0, OTHER))
        await until(node, lambda: leader(node) == (OTHER, 4))
        assert uploads.uploaded == [(0, 1)]
        _, row = await produce(node, 9, 0)
        assert row["error_code"] == NOT_LEADER


async def test_nothing_is_appended_and_read_while_a_partition_is_handed_over(tmp_path: Path) -> None:
    async with moves(tmp_path) as (node, made, uploads):
        held = node.services.partitions.registry.get("t", 0)
        assert held is not None
        uploads.may_end.clear()
        made.start()
        await node.services.topics.metadata_log.commit(lambda image: order_move(image, TOPIC_ID, 0, OTHER))
        await uploads.begun.wait()
        assert leader(node) == (THIS, 3)
        for answered in (await produce(node, 9, 0), await fetch(node, 12, 0)):
            assert answered[1]["error_code"] == NOT_LEADER
        wanted = [{"name": "t", "partitions": [{"partition_index": 0, "offset": 0}]}]
        deleted = await Asking(node).ask("delete_records", 2, topics=wanted, timeout=1000)
        assert deleted["topics"][0]["partitions"][0]["error_code"] == NOT_LEADER
        with pytest.raises(HandedOver) as refused:
            held.append(Batch(records(1), base_timestamp=NOW_MS).encode(), NOW_MS)
        assert refused.value.kafka_error_code == ErrorCode.not_leader_or_follower
        uploads.may_end.set()
        await until(node, lambda: leader(node) == (OTHER, 4))


async def test_a_partition_whose_upload_fails_is_served_again(tmp_path: Path) -> None:
    async with moves(tmp_path) as (node, made, uploads):
        uploads.error = OSError("the store refuses")
        topics = node.services.topics
        await topics.metadata_log.commit(lambda image: order_move(image, TOPIC_ID, 0, OTHER))
        assert await made.hand_over(planned_moves(topics.metadata_log.image, THIS)) == 0
        assert leader(node) == (THIS, 3)
        _, row = await produce(node, 9, 0)
        assert row["error_code"] == 0


async def test_a_move_that_is_taken_back_meanwhile_leaves_the_partition_here(tmp_path: Path) -> None:
    async with moves(tmp_path) as (node, made, uploads):
        log = node.services.topics.metadata_log
        uploads.may_end.clear()
        made.start()
        await log.commit(lambda image: reassign(image, "t", 0, [OTHER], THIS))
        await uploads.begun.wait()
        await log.commit(lambda image: reassign(image, "t", 0, None, THIS))
        uploads.may_end.set()
        async with asyncio.timeout(PATIENCE_S):
            while not uploads.kept:
                await asyncio.sleep(0)
        assert leader(node) == (THIS, 3)
        assert log.image.topics_by_id[TOPIC_ID].partitions[0].replicas == (THIS,)
        assert (await produce(node, 9, 0))[1]["error_code"] == 0


async def test_partitions_that_can_not_be_handed_over_hold_up_no_others(tmp_path: Path) -> None:
    async with moves(tmp_path) as (node, made, uploads):
        at_once = node.services.node.config.int("seqgate.cluster.moves.at.once")
        await commit(node, *(partition(TOPIC_ID, index, THIS) for index in range(2, at_once + 3)))
        healthy = uploads.hand_over

        async def hand_over(topic_id: uuid.UUID, index: int) -> None:
            if index < at_once + 2:
                raise OSError("the store refuses")
            await healthy(topic_id, index)

        uploads.hand_over = hand_over  # type: ignore[method-assign]
        await node.services.topics.metadata_log.commit(lambda image: drain_broker(image, THIS))
        made.start()
        await until(node, lambda: leader(node, at_once + 2)[0] == OTHER)
        assert leader(node)[0] == THIS


class TestAMoveWhoseOutcomeIsUnknown:
    """The change of the metadata fails, and may be in the log all the same."""

    @pytest.fixture(autouse=True)
    def retries(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(partition_moves, "RETRIED_AFTER_S", 0)

    async def _refused(
        self, node: Node, made: PartitionMoves, error: Exception, *, has_effect: bool
    ) -> list[int]:
        """Hand over with commits that fail at first; return how many partitions have moved, and what Produce
        answered meanwhile.
        """
        topics = node.services.topics
        log, failures, answers = topics.metadata_log, 3, list[int]()
        commit_now = log.commit
        await commit_now(lambda image: order_move(image, TOPIC_ID, 0, OTHER))
        planned = planned_moves(log.image, THIS)

        async def refused(decide: Callable[[MetadataImage], Decision[Any]]) -> Any:
            if len(answers) < failures:
                answers.append((await produce(node, 9, 0))[1]["error_code"])
                raise error
            if has_effect:  # another gateway has read the change, and leads by now
                await commit_now(lambda image: move_all(image, planned))
            return await commit_now(decide)

        log.commit = refused  # type: ignore[method-assign]
        answers.append(await made.hand_over(planned))
        log.commit = commit_now  # type: ignore[method-assign]
        return answers

    @pytest.mark.parametrize(
        "error", [StorageFailed("the store refuses"), RuntimeError("a listener of the metadata fails")]
    )
    async def test_nobody_here_serves_before_it_is_known(self, tmp_path: Path, error: Exception) -> None:
        async with moves(tmp_path) as (node, made, uploads):
            assert await self._refused(node, made, error, has_effect=True) == [NOT_LEADER] * 3 + [1]
            assert leader(node) == (OTHER, 4)
            assert not uploads.kept
            assert (await produce(node, 9, 0))[1]["error_code"] == NOT_LEADER

    async def test_a_partition_that_stayed_is_served_again(self, tmp_path: Path) -> None:
        async with moves(tmp_path) as (node, made, uploads):
            error = StorageFailed("the store refuses")
            assert await self._refused(node, made, error, has_effect=False) == [NOT_LEADER] * 3 + [0]
            assert leader(node) == (THIS, 3)
            assert uploads.kept == [0]
            assert (await produce(node, 9, 0))[1]["error_code"] == 0

    async def test_a_stop_meanwhile_leaves_the_partition_alone(self, tmp_path: Path) -> None:
        async with moves(tmp_path) as (node, made, uploads):
            log = node.services.topics.metadata_log
            begun = asyncio.Event()

            async def unanswered(_: object) -> Any:
                begun.set()
                await asyncio.Event().wait()

            await log.commit(lambda image: order_move(image, TOPIC_ID, 0, OTHER))
            commit_now, log.commit = log.commit, unanswered  # type: ignore[method-assign, assignment]
            made.start()
            await begun.wait()
            await made.stop()
            log.commit = commit_now  # type: ignore[method-assign]
            assert not uploads.kept
            assert (await produce(node, 9, 0))[1]["error_code"] == NOT_LEADER


async def test_a_partition_whose_move_failed_is_open_again(tmp_path: Path) -> None:
    async with moves(tmp_path) as (node, made, uploads):
        await produce(node, 9, 0)
        uploads.error = OSError("the store refuses")
        uploads.may_end.clear()
        partitions, topics = node.services.partitions, node.services.topics
        ready: list[tuple[str, int]] = []
        partitions.registry.when_ready.append(lambda topic, index: ready.append((topic, index)))
        made.start()
        await topics.metadata_log.commit(lambda image: order_move(image, TOPIC_ID, 0, OTHER))
        await uploads.begun.wait()
        topic = partitions.registry.by_name["t"]
        assert topic.peek(0) is None
        assert may_know_names(partitions.log_directory, topic, 0), "the log is open without a partition"
        uploads.may_end.set()
        async with asyncio.timeout(PATIENCE_S):
            while not ready:
                await asyncio.sleep(0)
        assert topic.peek(0) is not None
        assert ready == [("t", 0)]


async def test_a_partition_moves_once_its_records_have_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(partition_moves, "RETRIED_AFTER_S", 0.001)
    async with moves(tmp_path) as (node, made, uploads):
        await produce(node, 9, 0)
        lifecycle, planned = node.services.topics.lifecycle, asyncio.Event()
        with monkeypatch.context() as awaited:
            awaited.setattr(lifecycle, "leads", lambda *_: False)
            awaited.setattr(lifecycle, "is_awaited", lambda *_: planned.set() or True)
            made.start()
            await node.services.topics.metadata_log.commit(
                lambda image: order_move(image, TOPIC_ID, 0, OTHER)
            )
            for _ in range(2):
                planned.clear()
                await planned.wait()
            assert not uploads.begun.is_set()
        await until(node, lambda: leader(node) == (OTHER, 4))
    assert "can't be handed over" not in caplog.text


async def test_an_unexpected_error_ends_no_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [KeyError("a topic")]

    def fail_once(*arguments: Any, **flags: bool) -> Any:
        if failures:
            raise failures.pop()
        return planned_moves(*arguments, **flags)

    monkeypatch.setattr(partition_moves, "RETRIED_AFTER_S", 0)
    monkeypatch.setattr(partition_moves, "planned_moves", fail_once)
    async with moves(tmp_path) as (node, made, _):
        made.start()
        await node.services.topics.metadata_log.commit(lambda image: order_move(image, TOPIC_ID, 0, OTHER))
        await until(node, lambda: leader(node) == (OTHER, 4))


async def test_a_join_spreads_leaders_after_the_delay(tmp_path: Path) -> None:
    async with moves(tmp_path) as (node, made, uploads):
        await commit(node, *(partition(TOPIC_ID, index, THIS) for index in range(2, 6)))
        now_s = [0.0]
        made._seconds = lambda: now_s[0]
        made.start()
        await asyncio.sleep(0)
        assert not uploads.uploaded
        now_s[0] = 100.0
        await commit(node, broker(OTHER, epoch=9))
        now_s[0] = 200.0
        made._wake.set()
        await until(node, lambda: sum(leader(node, index)[0] == OTHER for index in range(6)) == 3)


async def test_a_drained_gateway_hands_everything_over_without_a_delay(tmp_path: Path) -> None:
    async with moves(tmp_path) as (node, made, _):
        await commit(node, *(partition(TOPIC_ID, index, THIS) for index in range(2, 5)))
        made.start()
        await node.services.topics.metadata_log.commit(lambda image: drain_broker(image, THIS))
        await until(node, lambda: all(leader(node, index)[0] == OTHER for index in range(5)))
