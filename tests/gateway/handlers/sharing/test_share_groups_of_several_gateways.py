"""Share groups whose partitions, delivery state and members are at different gateways."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.share.records import SharePartitionKey, ShareState
from seqgate.gateway.coordinator.share.share_partition import Acknowledgement
from seqgate.gateway.metadata.image import GROUP_RESOURCE, TOPIC_RESOURCE
from seqgate.gateway.metadata.records import TopicRecord
from tests.gateway.handlers.asking import Asking
from tests.gateway.handlers.requests import alter
from tests.gateway.handlers.support import Node
from tests.gateway.handlers.two_brokers import OTHER, THIS, TOPIC_ID, partition
from tests.gateway.handlers.two_gateways import SHARES_ID, Cluster, open_cluster
from tests.gateway.runtime.share_requests import GROUP, TOPIC, acknowledge, acquired, beat, fetch, write

ACCEPT, RELEASE, REJECT = 1, 2, 3
LETTERS_ID = uuid.UUID(int=77)
LEAVING = -1
KEY = SharePartitionKey(GROUP, TOPIC_ID, 0)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Node 1 leads the partition; node 2 coordinates the group and stores its delivery state."""
    async with open_cluster(tmp_path) as cluster:
        await cluster.store_state()
        await cluster.commit(TopicRecord(TOPIC, TOPIC_ID), partition(TOPIC_ID, 0, THIS))
        await alter(cluster.here, GROUP_RESOURCE, GROUP, {"share.auto.offset.reset": "earliest"})
        await cluster.settled()
        await beat(cluster.there, "a", 0, TOPIC)
        yield cluster


def row(answer: Any) -> Any:
    return answer.responses[0].partitions[0]


def stored_at(node: Node) -> Any:
    return node.services.coordinators.shares.stored.find(KEY)


async def test_members_are_served_by_the_leader_and_their_progress_is_stored_by_its_coordinator(
    cluster: Cluster,
) -> None:
    await write(cluster.here, 5)
    assert acquired(await fetch(cluster.here, TOPIC_ID)) == [(0, 4)]
    answer = await acknowledge(cluster.here, TOPIC_ID, 0, 2, ACCEPT)
    assert row(answer).error_code is ErrorCode.none
    assert stored_at(cluster.there).start_offset == 3
    answer = await acknowledge(cluster.here, TOPIC_ID, 3, 3, RELEASE, session_epoch=2)
    assert row(answer).error_code is ErrorCode.none
    assert acquired(await fetch(cluster.here, TOPIC_ID, session_epoch=3)) == [(3, 3)]
    assert SHARES_ID not in {log.topic_id for log in cluster.here.services.partitions.log_directory.logs()}


async def test_a_group_that_does_not_exist_is_refused(cluster: Cluster) -> None:
    answer = await fetch(cluster.here, TOPIC_ID, group_id="nobody")
    assert answer.error_code is ErrorCode.group_id_not_found
    cluster.silent.add(OTHER)
    answer = await fetch(cluster.here, TOPIC_ID)
    assert answer.error_code is ErrorCode.coordinator_not_available


async def test_a_new_leader_continues_and_the_leader_before_is_refused(cluster: Cluster) -> None:
    await write(cluster.here, 5)
    assert acquired(await fetch(cluster.here, TOPIC_ID)) == [(0, 4)]
    await acknowledge(cluster.here, TOPIC_ID, 0, 1, ACCEPT)
    shares = cluster.here.services.coordinators.shares
    led = shares.remote.find(KEY)
    assert led is not None
    state = await shares.persister.read(KEY, 1)
    assert state is not None
    assert state.start_offset == 2
    answer = await acknowledge(cluster.here, TOPIC_ID, 2, 2, ACCEPT, session_epoch=2)
    assert row(answer).error_code is ErrorCode.not_leader_or_follower
    assert shares.remote.find(KEY) is None
    assert stored_at(cluster.there).start_offset == 2


async def test_what_members_had_acquired_is_delivered_by_the_new_leader(cluster: Cluster) -> None:
    await write(cluster.here, 3)
    assert acquired(await fetch(cluster.here, TOPIC_ID)) == [(0, 2)]
    await acknowledge(cluster.here, TOPIC_ID, 0, 0, ACCEPT)
    await cluster.commit(partition(TOPIC_ID, 0, OTHER, 1))
    answer = await acknowledge(cluster.here, TOPIC_ID, 1, 1, ACCEPT, session_epoch=2)
    assert row(answer).error_code is ErrorCode.not_leader_or_follower
    assert row(answer).current_leader.leader_id == OTHER
    # the test has no bucket from which the new leader reads the records
    await write(cluster.there, 3)
    assert acquired(await fetch(cluster.there, TOPIC_ID, "b")) == [(1, 2)]
    assert stored_at(cluster.there).leader_epoch == 1


async def test_progress_that_can_not_be_stored_is_not_acknowledged(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqgate.gateway.runtime.coordinators.share_persister.RETRY_FOR_S", 0.2)
    await write(cluster.here, 2)
    assert acquired(await fetch(cluster.here, TOPIC_ID)) == [(0, 1)]
    cluster.silent.add(OTHER)
    answer = await acknowledge(cluster.here, TOPIC_ID, 0, 0, ACCEPT)
    assert row(answer).error_code is ErrorCode.coordinator_not_available
    cluster.silent.clear()
    assert acquired(await fetch(cluster.here, TOPIC_ID, session_epoch=2)) == [(0, 1)]
    assert stored_at(cluster.there).start_offset == 0


async def test_a_coordinator_that_moves_is_found_again(cluster: Cluster) -> None:
    await write(cluster.here, 2)
    assert acquired(await fetch(cluster.here, TOPIC_ID)) == [(0, 1)]
    await acknowledge(cluster.here, TOPIC_ID, 0, 0, ACCEPT)
    await cluster.commit(partition(SHARES_ID, 0, THIS, 1))
    # the test has no bucket from which the new share coordinator reads the state
    await cluster.here.services.coordinators.shares.stored.begin(KEY, 1, anew=False)
    assert acquired(await fetch(cluster.here, TOPIC_ID, "b")) == [(1, 1)]
    assert cluster.here.services.coordinators.shares.remote.find(KEY) is None


async def test_acknowledgements_that_come_together_go_together(cluster: Cluster) -> None:
    await write(cluster.here, 4)
    assert acquired(await fetch(cluster.here, TOPIC_ID)) == [(0, 3)]
    cluster.network.asked.clear()
    shares = cluster.here.services.coordinators.shares

    async def accept(offset: int) -> None:
        await shares.remote.change(
            KEY,
            lambda found: found.acknowledge(
                "a", [Acknowledgement(offset, offset, (ACCEPT,))], shares.limits(GROUP), 0
            ),
        )

    await asyncio.gather(*(accept(offset) for offset in range(4)))
    writes = [name for _, name in cluster.asked if name == "WriteShareGroupState"]
    assert len(writes) <= 2
    assert stored_at(cluster.there).start_offset == 4


async def test_locks_time_out_at_the_leader(cluster: Cluster) -> None:
    await write(cluster.here, 1)
    assert acquired(await fetch(cluster.here, TOPIC_ID)) == [(0, 0)]
    shares = cluster.here.services.coordinators.shares
    cluster.here.clock.time_ms += shares.limits(GROUP).lock_duration_ms
    shares._deadlines.release_due(cluster.here.clock.now_ms())
    assert acquired(await fetch(cluster.here, TOPIC_ID, "b")) == [(0, 0)]


async def test_sessions_that_end_release_records_and_forget_the_state(cluster: Cluster) -> None:
    await write(cluster.here, 1)
    assert acquired(await fetch(cluster.here, TOPIC_ID)) == [(0, 0)]
    shares = cluster.here.services.coordinators.shares
    cluster.here.peer.hang_up()
    async with asyncio.timeout(60):
        while shares.remote.find(KEY) is not None:
            await asyncio.sleep(0)
    found = stored_at(cluster.there)
    assert [(run.delivery_count, run.member_id) for run in found.runs] == [(1, "")]
    assert acquired(await fetch(cluster.here, TOPIC_ID, "b")) == [(0, 0)]


async def test_a_reset_counts_after_a_session_that_ended_during_its_first_read(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(cluster.here, 5)
    shares = cluster.here.services.coordinators.shares
    with monkeypatch.context() as patched:
        read = shares.persister.read

        async def hangs_up(key: SharePartitionKey, leader_epoch: int) -> ShareState | None:
            state = await read(key, leader_epoch)
            cluster.here.peer.hang_up()
            return state

        patched.setattr(shares.persister, "read", hangs_up)
        assert acquired(await fetch(cluster.here, TOPIC_ID)) == []
    assert shares.remote.find(KEY) is None
    await cluster.there.services.coordinators.shares.begin_at(KEY, 4)
    assert acquired(await fetch(cluster.here, TOPIC_ID, "b")) == [(4, 4)]


async def test_a_reset_counts_after_a_move_of_a_group_without_members(cluster: Cluster) -> None:
    await write(cluster.here, 5)
    shares = cluster.here.services.coordinators.shares
    source = cluster.here.services.partitions.registry.get(TOPIC, 0)
    assert source is not None
    assert await shares.skip_to(KEY, source, 3) == 3
    assert await shares.skip_to(KEY, source, 2) == 0
    await cluster.there.services.coordinators.shares.begin_at(KEY, 1)
    assert acquired(await fetch(cluster.here, TOPIC_ID)) == [(1, 4)]


async def test_sessions_of_a_group_that_was_deleted_end(cluster: Cluster) -> None:
    await write(cluster.here, 2)
    assert acquired(await fetch(cluster.here, TOPIC_ID)) == [(0, 1)]
    await beat(cluster.there, "a", LEAVING)
    deleted = await Asking(cluster.there).ask("delete_groups", 2, groups_names=[GROUP])
    assert deleted["results"][0]["error_code"] == 0
    answer = await acknowledge(cluster.here, TOPIC_ID, 0, 0, ACCEPT)
    assert row(answer).error_code is ErrorCode.invalid_request
    again = await fetch(cluster.here, TOPIC_ID, session_epoch=2)
    assert again.error_code is ErrorCode.share_session_not_found
    assert (await fetch(cluster.here, TOPIC_ID)).error_code is ErrorCode.group_id_not_found
    assert stored_at(cluster.there) is None


class TestAdministration:
    """The group coordinator, node 2, is asked; here node 1 stores the delivery state, and leads the
    partition.
    """

    @pytest.fixture
    async def cluster(self, cluster: Cluster) -> Cluster:
        await cluster.commit(partition(SHARES_ID, 0, THIS, 1))
        await write(cluster.here, 5)
        assert acquired(await fetch(cluster.here, TOPIC_ID)) == [(0, 4)]
        await acknowledge(cluster.here, TOPIC_ID, 0, 1, ACCEPT)
        return cluster

    @staticmethod
    async def offsets(cluster: Cluster, node: Node | None = None, topics: Any = None) -> Any:
        groups = [{"group_id": GROUP, "topics": topics}]
        answer = await Asking(node or cluster.there).ask("describe_share_group_offsets", 1, groups=groups)
        return answer["groups"][0]

    async def test_the_offsets_and_the_lag_of_a_group_are_found_elsewhere(self, cluster: Cluster) -> None:
        named = [{"topic_name": TOPIC, "partitions": [0, 7]}]
        for topics, count in ((None, 1), (named, 2)):
            rows = (await self.offsets(cluster, topics=topics))["topics"][0]["partitions"]
            assert [(row["start_offset"], row["lag"]) for row in rows] == [(2, 3), (-1, -1)][:count]

    async def test_another_gateway_is_not_the_coordinator(self, cluster: Cluster) -> None:
        for topics in (None, [{"topic_name": TOPIC, "partitions": [0]}]):
            answer = await self.offsets(cluster, cluster.here, topics)
            assert answer["error_code"] == int(ErrorCode.not_coordinator)

    async def test_a_start_offset_is_altered_where_it_is_stored(self, cluster: Cluster) -> None:
        await beat(cluster.there, "a", LEAVING)
        partitions = [{"partition_index": 0, "start_offset": 1}]
        topics = [{"topic_name": TOPIC, "partitions": partitions}]
        answer = await Asking(cluster.there).ask(
            "alter_share_group_offsets", 0, group_id=GROUP, topics=topics
        )
        assert answer["responses"][0]["partitions"][0]["error_code"] == 0
        assert stored_at(cluster.here).start_offset == 1
        assert stored_at(cluster.here).state_epoch > 1, "also above the epoch of a deleted state"

    async def test_a_deleted_group_is_gone_everywhere(self, cluster: Cluster) -> None:
        await beat(cluster.there, "a", LEAVING)
        answer = await Asking(cluster.there).ask("delete_groups", 2, groups_names=[GROUP])
        assert answer["results"][0]["error_code"] == 0
        assert stored_at(cluster.here) is None

    async def test_deleted_offsets_are_gone_everywhere(self, cluster: Cluster) -> None:
        await beat(cluster.there, "a", LEAVING)
        answer = await Asking(cluster.there).ask(
            "delete_share_group_offsets", 0, group_id=GROUP, topics=[{"topic_name": TOPIC}]
        )
        assert answer["responses"][0]["error_code"] == 0
        assert stored_at(cluster.here) is None

    async def test_a_group_is_not_deleted_while_its_state_can_not_be(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("seqgate.gateway.runtime.coordinators.share_persister.RETRY_FOR_S", 0.2)
        await beat(cluster.there, "a", LEAVING)
        cluster.silent.add(THIS)
        answer = await Asking(cluster.there).ask("delete_groups", 2, groups_names=[GROUP])
        assert answer["results"][0]["error_code"] == int(ErrorCode.coordinator_not_available)
        assert cluster.there.services.coordinators.shares.group(GROUP) is not None


class TestDeadLetters:
    """The group's dead letters go to a topic whose partition one of the two gateways leads."""

    async def begin(self, cluster: Cluster, leader: int) -> None:
        await cluster.commit(TopicRecord("dlq.t", LETTERS_ID), partition(LETTERS_ID, 0, leader))
        await alter(cluster.here, TOPIC_RESOURCE, "dlq.t", {"errors.deadletterqueue.group.enable": "true"})
        await alter(
            cluster.here,
            GROUP_RESOURCE,
            GROUP,
            {"share.auto.offset.reset": "earliest", "errors.deadletterqueue.topic.name": "dlq.t"},
        )
        await cluster.settled()
        await write(cluster.here, 3)
        assert acquired(await fetch(cluster.here, TOPIC_ID)) == [(0, 2)]

    def letters(self, node: Node) -> list[str]:
        found = node.services.partitions.registry.get("dlq.t", 0)
        assert found is not None
        return [
            (dict(record.headers)["__dlq.errors.offset"] or b"").decode()
            for record in found.log.replay_records(0)
        ]

    async def ended(self, cluster: Cluster) -> None:
        async with asyncio.timeout(120):
            while stored_at(cluster.there).is_sending or cluster.here.services.coordinators.letters:
                await asyncio.sleep(0.001)

    @pytest.mark.parametrize("leader", [THIS, OTHER])
    async def test_the_leader_of_the_records_writes_them(self, cluster: Cluster, leader: int) -> None:
        await self.begin(cluster, leader)
        assert row(await acknowledge(cluster.here, TOPIC_ID, 0, 1, REJECT)).error_code is ErrorCode.none
        await self.ended(cluster)
        assert self.letters(cluster.nodes[leader]) == ["0", "1"]
        assert stored_at(cluster.there).start_offset == 2

    async def test_one_whose_answer_was_lost_is_not_written_twice(self, cluster: Cluster) -> None:
        await self.begin(cluster, OTHER)
        lost: list[str] = []

        def loses(_from: int, _to: int, request: Any) -> bool:
            name = type(request).__name__
            lost.append(name)
            return name == "ProduceRequest" and lost.count(name) == 1

        cluster.network.lose_answer = loses
        await acknowledge(cluster.here, TOPIC_ID, 0, 0, REJECT)
        await self.ended(cluster)
        assert lost.count("ProduceRequest") == 2
        assert self.letters(cluster.there) == ["0"]

    async def test_a_new_leader_writes_what_the_leader_before_has_not(self, cluster: Cluster) -> None:
        await self.begin(cluster, OTHER)
        cluster.network.lose = lambda _, __, request: type(request).__name__ == "ProduceRequest"
        await acknowledge(cluster.here, TOPIC_ID, 0, 0, REJECT)
        await cluster.network.got(THIS, OTHER, "Produce")
        assert stored_at(cluster.there).is_sending
        await cluster.commit(partition(TOPIC_ID, 0, OTHER, 1))
        # the test has no bucket from which the new leader reads the records
        await write(cluster.there, 3)
        assert acquired(await fetch(cluster.there, TOPIC_ID, "b")) == [(1, 2)]
        async with asyncio.timeout(120):
            while stored_at(cluster.there).is_sending:
                await asyncio.sleep(0.001)
        assert self.letters(cluster.there) == ["0"]


async def test_a_retry_delay_is_stored_by_the_coordinator_and_read_by_the_next_leader(
    cluster: Cluster,
) -> None:
    configs = {"share.auto.offset.reset": "earliest", "seqgate.share.retry.backoff.ms": "70"}
    await alter(cluster.here, GROUP_RESOURCE, GROUP, configs)
    await cluster.settled()
    await write(cluster.here, 3)
    assert acquired(await fetch(cluster.here, TOPIC_ID)) == [(0, 2)]
    await acknowledge(cluster.here, TOPIC_ID, 1, 1, RELEASE)
    due_ms = cluster.here.clock.now_ms() + 70
    waiting = [run.deadline_ms for run in stored_at(cluster.there).runs if run.is_waiting]
    assert waiting == [due_ms]
    state = await cluster.here.services.coordinators.shares.persister.read(KEY, 1)
    assert state is not None
    assert [(batch.first_offset, batch.due_ms) for batch in state.batches] == [(1, due_ms)]
