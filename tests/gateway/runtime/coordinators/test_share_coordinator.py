"""Share groups on real logs: the answers to hostile and unlucky members, and the state after a restart."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Hashable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.epoch_group import LEAVING
from seqgate.gateway.coordinator.group.share_group import ROWS
from seqgate.gateway.coordinator.share.records import SharePartitionKey, Write
from seqgate.gateway.handlers.sharing import share_fetch
from seqgate.gateway.handlers.sharing.share_group_offsets import begin_group
from seqgate.gateway.runtime.coordinators.shards import CoordinatorShards, Unavailable
from seqgate.gateway.runtime.coordinators.share_coordinator import ShareWaiters
from tests.gateway.handlers.requests import delete
from tests.gateway.handlers.support import FakePeer, Node, open_node
from tests.gateway.runtime.share_requests import (
    GROUP,
    SETTINGS,
    TOPIC,
    acknowledge,
    acquired,
    beat,
    begin,
    fetch,
    key_of,
    write,
)

RECORD_LIMIT = 1


class TestAcquiring:
    async def test_members_with_a_record_limit_share_one_batch(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            topic_id = await begin(node)
            await write(node, 10)
            limit = {"max_records": 4, "share_acquire_mode": RECORD_LIMIT}
            got = [acquired(await fetch(node, topic_id, member_id, **limit)) for member_id in "abcd"]
            assert got == [[(0, 3)], [(4, 7)], [(8, 9)], []]

    async def test_a_member_that_left_while_it_waited_acquires_nothing(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            topic_id = await begin(node)
            assert acquired(await fetch(node, topic_id)) == []
            waiting = asyncio.create_task(
                fetch(node, topic_id, session_epoch=1, max_wait=timedelta(seconds=30))
            )
            shares = node.services.coordinators.shares
            while not shares.waiters:
                await asyncio.sleep(0)
            shares.release_member(GROUP, "a")
            await write(node, 3)
            assert acquired(await waiting) == []
            assert not shares.waiters
            assert acquired(await fetch(node, topic_id, "b")) == [(0, 2)]

    async def test_records_that_come_before_a_fetch_waits_are_noticed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read = share_fetch.read

        async def then_write(*asked: Any) -> share_fetch.Batches | None:
            batches = await read(*asked)
            if batches is None:
                await write(node, 3)
            return batches

        async with open_node(tmp_path, *SETTINGS) as node:
            topic_id = await begin(node)
            monkeypatch.setattr(share_fetch, "read", then_write)
            async with asyncio.timeout(60):
                assert acquired(await fetch(node, topic_id, max_wait=timedelta(days=1))) == [(0, 2)]

    async def test_a_topic_that_is_created_anew_is_read_from_its_start(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            old_id = await begin(node)
            await write(node, 3)
            assert acquired(await fetch(node, old_id)) == [(0, 2)]
            await delete(node, TOPIC)
            response = await fetch(node, old_id, session_epoch=1)
            assert response.responses[0].partitions[0].error_code is ErrorCode.unknown_topic_id
            new_id = await begin(node)
            await write(node, 2)
            assert acquired(await fetch(node, new_id)) == [(0, 1)]


class TestSessions:
    async def test_those_of_strangers_end_when_there_are_too_many(self, tmp_path: Path) -> None:
        limits = ("group.share.max.size=2", "group.share.max.share.sessions=2")
        async with open_node(tmp_path, *SETTINGS, *limits) as node:
            topic_id = await begin(node)
            for member_id in "abcdef":
                response = await fetch(node, topic_id, member_id)
                assert response.error_code is ErrorCode.none
            assert len(node.services.coordinators.shares.sessions) <= 2

    async def test_a_group_whose_id_fits_no_record_is_refused(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            topic_id = await begin(node)
            too_long = "g" * 2**15
            assert (await fetch(node, topic_id, group_id=too_long)).error_code is ErrorCode.invalid_group_id
            joined = await beat(node, "a", 0, TOPIC, group_id=too_long)
            assert joined.error_code is ErrorCode.invalid_group_id


class TestGoneClients:
    async def test_what_one_acquired_comes_to_the_next_at_once(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            topic_id = await begin(node)
            await write(node, 4)
            gone = node.peer
            assert acquired(await fetch(node, topic_id)) == [(0, 3)]
            node.peer = FakePeer()
            waiting = asyncio.create_task(fetch(node, topic_id, "b", max_wait=timedelta(seconds=30)))
            while not node.services.coordinators.shares.waiters:
                await asyncio.sleep(0)
            gone.hang_up()
            assert acquired(await waiting) == [(0, 3)]
            assert not gone.callbacks

    async def test_a_waiting_fetch_acquires_nothing_any_more(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            topic_id = await begin(node)
            gone = node.peer
            waiting = asyncio.create_task(fetch(node, topic_id, max_wait=timedelta(seconds=30)))
            while not node.services.coordinators.shares.waiters:
                await asyncio.sleep(0)
            gone.hang_up()
            node.peer = FakePeer()
            await write(node, 3)
            assert acquired(await waiting) == []
            assert acquired(await fetch(node, topic_id, "b")) == [(0, 2)]

    async def test_the_end_of_an_older_connection_ends_no_newer_session(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            topic_id = await begin(node)
            older, node.peer = node.peer, FakePeer()
            await write(node, 1)
            await fetch(node, topic_id)
            newer, node.peer = node.peer, older
            await fetch(node, topic_id, "b")
            node.peer = newer
            await fetch(node, topic_id, "b")
            older.hang_up()
            assert set(node.services.coordinators.shares.sessions) == {(GROUP, "a"), (GROUP, "b")}
            newer.hang_up()
            assert not node.services.coordinators.shares.sessions

    async def test_the_session_of_one_who_is_already_gone_ends_at_once(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            topic_id = await begin(node)
            await write(node, 1)
            node.peer = GonePeer()
            assert acquired(await fetch(node, topic_id)) == []
            assert not node.services.coordinators.shares.sessions


class GonePeer(FakePeer):
    def when_gone(self, key: Hashable, callback: Callable[[], None]) -> None:
        del key
        callback()


class TestDeadlines:
    async def test_a_lock_ends_although_its_state_was_out_of_reach(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The lease of the gateway is over for a moment when the lock times out."""
        async with open_node(tmp_path, *SETTINGS) as node:
            topic_id = await begin(node)
            await write(node, 1)
            assert acquired(await fetch(node, topic_id)) == [(0, 0)]
            shares = node.services.coordinators.shares
            node.clock.time_ms += shares.limits(GROUP).lock_duration_ms
            with monkeypatch.context() as away:
                away.setattr(CoordinatorShards, "_check_leads", raise_unavailable)
                shares._deadlines.release_due(node.clock.time_ms)
            assert acquired(await fetch(node, topic_id, "b")) == []
            node.clock.time_ms += 1_000
            shares._deadlines.release_due(node.clock.time_ms)
            assert acquired(await fetch(node, topic_id, "b", session_epoch=1)) == [(0, 0)]


def raise_unavailable(_: object) -> None:
    raise Unavailable


class TestRestart:
    async def test_what_is_done_stays_done_and_the_rest_comes_again(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            topic_id = await begin(node)
            await write(node, 10)
            assert acquired(await fetch(node, topic_id)) == [(0, 9)]
            answer = await acknowledge(node, topic_id, 2, 4, 1)
            assert answer.responses[0].partitions[0].error_code is ErrorCode.none
        async with open_node(tmp_path, *SETTINGS) as node:
            found = node.services.coordinators.shares.find(SharePartitionKey(GROUP, topic_id, 0))
            assert found is not None
            assert found.start_offset == 0
            assert acquired(await fetch(node, topic_id)) == [(0, 1), (5, 9)]


class TestMembers:
    def end_offset(self, node: Node) -> int:
        partition = node.services.partitions.registry.get("__consumer_offsets", 0)
        assert partition is not None
        return partition.log.log_end_offset

    async def test_they_go_on_after_a_restart(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            await begin(node)
            joined = await beat(node, "a", 0, TOPIC)
            before = node.services.coordinators.shares.group(GROUP)
        async with open_node(tmp_path, *SETTINGS) as node:
            after = node.services.coordinators.shares.group(GROUP)
            assert before is not None
            assert after is not None
            for key in (*ROWS.stored_keys(before), *ROWS.stored_keys(after)):
                assert before.record_of(*key) == after.record_of(*key)
            end_offset = self.end_offset(node)
            told = await beat(node, "a", joined.member_epoch)
            assert (told.error_code, told.member_epoch) == (ErrorCode.none, joined.member_epoch)
            assert told.assignment is None
            assert self.end_offset(node) == end_offset, "nothing changed, so nothing is written"

    async def test_they_are_kept_when_the_log_is_written_anew(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            await begin(node)
            await beat(node, "a", 0, TOPIC)
            await beat(node, "gone", 0, TOPIC)
            await beat(node, "gone", LEAVING)
            before = node.services.coordinators.shares.group(GROUP)
            await node.services.coordinators.groups.shards.at(0).rewrite(node.clock)
            partition = node.services.partitions.registry.get("__consumer_offsets", 0)
            assert partition is not None
            assert partition.log.log_start_offset > 0
        async with open_node(tmp_path, *SETTINGS) as node:
            after = node.services.coordinators.shares.group(GROUP)
            assert before is not None
            assert after is not None
            assert set(after.members) == {"a", "z"}
            for key in ROWS.stored_keys(before):
                assert before.record_of(*key) == after.record_of(*key)

    async def test_a_deleted_group_is_gone_with_its_delivery_state(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            topic_id = await begin(node)
            await fetch(node, topic_id)
            shares = node.services.coordinators.shares
            assert await shares.delete_without_members(GROUP) is ErrorCode.non_empty_group
            await beat(node, "z", LEAVING)
            assert await shares.delete_without_members(GROUP) is ErrorCode.none
            assert await shares.delete_without_members(GROUP) is None
            answer = await fetch(node, topic_id, session_epoch=1)
            assert answer.error_code is ErrorCode.share_session_not_found
        async with open_node(tmp_path, *SETTINGS) as node:
            assert node.services.coordinators.shares.group(GROUP) is None
            assert not node.services.coordinators.shares.known(GROUP)
            answer = await fetch(node, topic_id)
            assert answer.error_code is ErrorCode.group_id_not_found

    async def test_nobody_joins_a_group_that_is_being_deleted(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            await begin(node)
            await write(node, 3)
            shares, key = node.services.coordinators.shares, key_of(node)
            await beat(node, "z", LEAVING)
            await begin_group(node.services.coordinators, key, TOPIC, 2)
            deleting = asyncio.create_task(shares.delete_without_members(GROUP))
            await asyncio.sleep(0)
            joining = await beat(node, "late", 0, TOPIC)
            assert joining.error_code is ErrorCode.coordinator_load_in_progress
            with pytest.raises(Unavailable):
                await begin_group(node.services.coordinators, key, TOPIC, 1)
            assert await deleting is ErrorCode.none
            assert shares.group(GROUP) is None
            assert shares.known(GROUP) == {}
            assert (await beat(node, "late", 0, TOPIC)).error_code is ErrorCode.none

    async def test_offsets_stay_once_a_member_has_joined(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            topic_id = await begin(node)
            coordinators, key = node.services.coordinators, key_of(node)
            shares = coordinators.shares
            await beat(node, "z", LEAVING)
            assert await begin_group(coordinators, key, TOPIC, 2) is ErrorCode.none
            for change in (
                lambda: begin_group(coordinators, key, TOPIC, 1),
                lambda: shares.forget_topic(GROUP, topic_id),
                lambda: shares.delete_without_members(GROUP),
            ):
                joining = asyncio.create_task(beat(node, "late", 0, TOPIC))
                await asyncio.sleep(0)
                assert await change() is ErrorCode.non_empty_group
                assert shares.known(GROUP)[key].start_offset == 2
                assert (await joining).error_code is ErrorCode.none
                await beat(node, "late", LEAVING)

    async def test_nobody_joins_a_group_while_the_offsets_of_a_topic_are_deleted(
        self, tmp_path: Path
    ) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            topic_id = await begin(node)
            coordinators, key = node.services.coordinators, key_of(node)
            await beat(node, "z", LEAVING)
            await begin_group(coordinators, key, TOPIC, 2)
            deleting = [
                asyncio.create_task(coordinators.shares.forget_topic(GROUP, topic_id)) for _ in range(2)
            ]
            await asyncio.sleep(0)
            assert (await beat(node, "late", 0, TOPIC)).error_code is ErrorCode.coordinator_load_in_progress
            with pytest.raises(Unavailable):
                await begin_group(coordinators, key, TOPIC, 1)
            assert await asyncio.gather(*deleting) == [ErrorCode.none] * 2
            assert coordinators.shares.begun(GROUP) == set()
            assert (await beat(node, "late", 0, TOPIC)).error_code is ErrorCode.none

    async def test_a_group_with_members_keeps_its_delivery_state(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            await begin(node)
            shares, key = node.services.coordinators.shares, key_of(node)
            await shares.begin_at(key, 0)
            assert await shares.delete_without_members(GROUP) is ErrorCode.non_empty_group
            assert set(shares.known(GROUP)) == {key}

    async def test_writes_for_a_deleted_state_are_refused_after_a_reset(self, tmp_path: Path) -> None:
        """Their leader may not know yet that the state was deleted and begun anew."""
        async with open_node(tmp_path, *SETTINGS) as node:
            await begin(node)
            shares, key = node.services.coordinators.shares, key_of(node)
            await shares.begin_at(key, 2)
            before = shares.stored.find(key)
            assert before is not None
            node.clock.time_ms -= 60_000
            await shares.forget([key])
            await shares.begin_at(key, 0)
            late = Write(before.state_epoch, before.leader_epoch, 2, ())
            refusal = await shares.stored.run(key, lambda states, _: states.write(key, late))
            assert refusal is not None
            assert refusal.error_code is ErrorCode.fenced_state_epoch

    async def test_what_one_had_who_is_given_up_comes_to_the_next(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            topic_id = await begin(node)
            await beat(node, "a", 0, TOPIC)
            await write(node, 2)
            assert acquired(await fetch(node, topic_id)) == [(0, 1)]
            await beat(node, "b", 0, TOPIC)
            assert acquired(await fetch(node, topic_id, "b")) == []
            node.clock.time_ms += 44_000
            await beat(node, "b", 0, TOPIC)
            node.clock.time_ms += 2_000
            groups = node.services.coordinators.groups
            groups._deadlines.release_due(node.clock.time_ms)
            group = node.services.coordinators.shares.group(GROUP)
            assert group is not None
            assert set(group.members) == {"b"}
            assert acquired(await fetch(node, topic_id, "b", 1)) == [(0, 1)]

    async def test_there_are_no_more_groups_than_are_allowed(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS, "group.share.max.groups=2") as node:
            await begin(node)
            errors = [
                (await beat(node, "a", 0, TOPIC, group_id=group_id)).error_code
                for group_id in ("second", "third", "second")
            ]
            assert errors == [ErrorCode.none, ErrorCode.group_max_size_reached, ErrorCode.none]
            key = key_of(node)._replace(group_id="third")
            error = await begin_group(node.services.coordinators, key, TOPIC, 2)
            assert error is ErrorCode.group_max_size_reached
            assert node.services.coordinators.shares.group("third") is None


async def test_what_a_group_has_begun_is_forgotten_with_the_topic(tmp_path: Path) -> None:
    async with open_node(tmp_path, *SETTINGS) as node:
        await begin(node)
        assert node.services.coordinators.shares.begun(GROUP)
        await delete(node, TOPIC)
        assert not node.services.coordinators.shares.begun(GROUP)


async def test_the_state_of_a_deleted_topic_is_forgotten(tmp_path: Path) -> None:
    async with open_node(tmp_path, *SETTINGS) as node:
        topic_id = await begin(node)
        await write(node, 3)
        await fetch(node, topic_id)
        assert node.services.coordinators.shares.known(GROUP)
        await delete(node, TOPIC)
        assert not node.services.coordinators.shares.known(GROUP)
    async with open_node(tmp_path, *SETTINGS) as node:
        assert not node.services.coordinators.shares.known(GROUP)


def test_the_fetch_that_waits_longest_is_woken_first() -> None:
    waiters, key, woken = ShareWaiters(), SharePartitionKey(GROUP, uuid.UUID(int=1), 0), list[int]()
    wakes = [partial(woken.append, number) for number in range(50)]
    for wake in wakes:
        waiters.add(key, wake)
    waiters.remove(key, wakes[7])
    waiters.wake(key)
    assert woken == [number for number in range(50) if number != 7]
