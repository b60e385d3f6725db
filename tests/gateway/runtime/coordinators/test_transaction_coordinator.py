"""The transaction coordinator on real logs: when it answers, what a restart restores, and which transactions
time out.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.change import Change
from seqgate.gateway.coordinator.transaction.records import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    ONGOING,
    PREPARE_COMMIT,
    Transaction,
    TransactionRecord,
)
from seqgate.gateway.coordinator.transaction.rules import Producer, TransactionRefused
from seqgate.gateway.handlers.transactions.end_txn import EndRequest, end_transaction
from seqgate.gateway.handlers.transactions.init_producer_id import begin_producer
from seqgate.gateway.metadata.image import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from seqgate.gateway.runtime.coordinators import transaction_coordinator
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.coordinators.transaction_coordinator import WrittenState
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.log import Storage, StorageFailed
from seqgate.log.files.storage import DataFile
from tests.faults.directory_life import ROOT, new_disk
from tests.faults.simulated_disk import SimulatedDisk
from tests.gateway.handlers.requests import create, delete
from tests.gateway.handlers.support import Node, open_node
from tests.support.batches import Batch, Record
from tests.support.transactional_client import (
    ADDS_FIRST,
    PARTITIONS,
    TOPIC,
    TRANSACTIONAL,
    Attempt,
    Client,
    Outcome,
    Refused,
    outcomes,
    settle,
)

SETTINGS = ("transaction.state.log.num.partitions=1", "offsets.topic.num.partitions=1")
COMMITTED = [Outcome.COMMITTED] * PARTITIONS
ABORTED = [Outcome.ABORTED] * PARTITIONS
NAME = "payments"
DAY_MS = 86_400_000


async def prepared(node: Node, version: int = 12, name: str = NAME) -> Client:
    """Return a client that has begun."""
    await create(node, TOPIC, PARTITIONS)
    await node.services.coordinators.transactions.ensure_topic()
    client = Client(node, name, version)
    await client.begin()
    return client


def current(node: Node, name: str = NAME) -> Transaction:
    found = node.services.coordinators.transactions.find(name)
    assert found is not None
    return found


def partition(node: Node, index: int = 0, topic: str = TOPIC) -> Partition:
    found = node.services.partitions.registry.get(topic, index)
    assert found is not None
    return found


async def refusal(work: object) -> ErrorCode:
    try:
        await work  # type: ignore[misc]
    except (TransactionRefused, Unavailable) as error:
        return error.error_code
    raise AssertionError("the request was not refused")


def write(node: Node, value: Transaction) -> None:
    """Store a state of the transactional id that no sequence of requests reaches."""
    shards = node.services.coordinators.transactions.shards
    (loaded,) = shards
    shards.apply(loaded, lambda *_: Change(None, [TransactionRecord(NAME, value)]))


class TestTransactions:
    @pytest.mark.parametrize("version", [12, ADDS_FIRST])
    async def test_one_after_the_other_without_a_wait(self, tmp_path: Path, version: int) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            client = await prepared(node, version)
            for number in range(6):
                await client.transact(Attempt(str(number)), commit=number % 2 == 0)
            assert outcomes(node) == {
                str(number): ABORTED if number % 2 else COMMITTED for number in range(6)
            }
            assert current(node).state is COMPLETE_ABORT
            assert client.producer.producer_epoch == (6 if version == 12 else 0)
            before = current(node)
        async with open_node(tmp_path, *SETTINGS) as node:
            assert current(node) == before

    async def test_without_the_topic_clients_look_for_the_coordinator(self, tmp_path: Path) -> None:
        async with open_node(tmp_path) as node:
            begun = Client(node, NAME).begin()
            assert await refusal(begun) is ErrorCode.not_coordinator

    async def test_an_open_transaction_is_aborted_for_the_next_producer(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            zombie = await prepared(node)
            await zombie.write("left", 0)
            successor = Client(node, NAME)
            await successor.begin()
            assert successor.producer == Producer(zombie.producer.producer_id, 2)
            assert outcomes(node) == {"left": [Outcome.ABORTED]}
            assert await refusal(zombie.end(commit=True)) is ErrorCode.producer_fenced
            with pytest.raises(Refused):
                await zombie.write("late", 0)
            await successor.transact(Attempt("next"), commit=True)

    async def test_two_producers_that_begin_together(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            first = await prepared(node)
            await first.write("left", 0)
            others = [Client(node, NAME) for _ in range(3)]
            await asyncio.gather(*(other.begin() for other in others))
            assert len({other.producer for other in others}) == 3
            last = max(others, key=lambda other: other.producer.producer_epoch)
            await last.transact(Attempt("last"), commit=True)
            assert outcomes(node)["left"] == [Outcome.ABORTED]

    async def test_operations_of_one_turn_are_one_batch(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            await create(node, TOPIC, PARTITIONS)
            transactions = node.services.coordinators.transactions
            await transactions.ensure_topic()
            clients = [Client(node, f"{NAME}-{number}") for number in range(20)]
            await asyncio.gather(*(client.begin() for client in clients))
            assert len({client.producer for client in clients}) == 20
            places = frozenset({(TOPIC, 0)})
            await asyncio.gather(
                *(
                    transactions.add_partitions(client.transactional_id, client.producer, places, 0)
                    for client in clients
                )
            )
            log = partition(node, 0, TRANSACTION_STATE_TOPIC).log
            assert [header.record_count for header, _ in log.replay_batches(0)] == [20, 20]

    async def test_two_producers_that_begin_together_when_the_epochs_are_used_up(
        self, tmp_path: Path
    ) -> None:
        """Only the first one's round shows that the second one needs another producer id."""
        async with open_node(tmp_path, *SETTINGS) as node:
            client = await prepared(node)
            before = client.producer.producer_id
            write(node, current(node)._replace(producer_epoch=32_765))
            others = [Client(node, NAME) for _ in range(2)]
            await asyncio.gather(*(other.begin() for other in others))
            first, second = (other.producer for other in others)
            assert first == Producer(before, 32_766)
            assert second.producer_epoch == 0
            assert second.producer_id not in {-1, before}

    async def test_the_epochs_of_an_id_are_used_up(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            client = await prepared(node)
            transactions = node.services.coordinators.transactions
            write(node, current(node)._replace(producer_epoch=32_766))
            client.producer = Producer(client.producer.producer_id, 32_766)
            request = EndRequest(client.producer, True, 2)
            await client.transact(Attempt("a"), commit=True)
            assert client.producer.producer_epoch == 0
            assert client.producer.producer_id != request.producer.producer_id
            assert await end_transaction(transactions, NAME, request) == client.producer, (
                "a repeated EndTxn must get the same answer"
            )
            await client.transact(Attempt("b"), commit=True)
            assert outcomes(node) == {"a": COMMITTED, "b": COMMITTED}

    async def test_the_offsets_of_a_group_take_part(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            client = await prepared(node)
            services = node.services
            told: list[tuple[str, int, Producer, bool]] = []
            services.partitions.markers.listeners.append(
                lambda place, producer, commit: told.append((place.topic, place.index, producer, commit))
            )
            await services.coordinators.groups.ensure_topic()
            places = frozenset({(OFFSETS_TOPIC, services.coordinators.groups.shards.index_of("group"))})
            await services.coordinators.transactions.add_partitions(NAME, client.producer, places, 2)
            assert current(node).partitions == {(OFFSETS_TOPIC, 0)}
            await client.end(commit=True)
            assert told == [(OFFSETS_TOPIC, 0, client.producer, True)]


class TestLimits:
    async def test_of_transactional_ids(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS, "seqgate.transactional.id.max=1") as node:
            client = await prepared(node)
            assert await refusal(Client(node, "other").begin()) is ErrorCode.policy_violation
            await client.begin()

    async def test_of_partitions(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS, "seqgate.transaction.partitions.max=1") as node:
            client = await prepared(node)
            await client.write("a", 0)
            with pytest.raises(Refused):
                await client.write("a", 1)
            await client.end(commit=True)
            await client.write("b", 1)

    async def test_of_what_one_record_can_name(self, tmp_path: Path) -> None:
        """The shard stays, and the transaction can end."""
        async with open_node(tmp_path, *SETTINGS, "message.max.bytes=4096") as node:
            client = await prepared(node)
            transactions = node.services.coordinators.transactions
            loaded = list(transactions.shards)
            names = [f"{number:02d}".ljust(200, "x") for number in range(20)]
            refusals = []
            for name in names:
                await create(node, name)
                try:
                    transactions.verify_or_add(NAME, client.producer, (name, 0), 2)
                except TransactionRefused as error:
                    refusals.append(error.error_code)
            assert set(refusals) == {ErrorCode.policy_violation}
            assert len(current(node).partitions) == len(names) - len(refusals) > 10
            assert list(transactions.shards) == loaded
            await client.end(commit=True)
            assert current(node).state is COMPLETE_COMMIT

    async def test_of_time(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS, "transaction.max.timeout.ms=59999") as node:
            with pytest.raises(TransactionRefused) as refused:
                await prepared(node)
            assert refused.value.error_code is ErrorCode.invalid_transaction_timeout


class TestTime:
    @pytest.mark.parametrize("version", [12, ADDS_FIRST])
    async def test_a_transaction_that_takes_too_long_is_aborted(self, tmp_path: Path, version: int) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            client = await prepared(node, version)
            await client.write("a", 1)
            node.clock.time_ms += 59_999
            node.services.coordinators.transactions.abort_overdue()
            assert current(node).state is ONGOING
            await settle(node)
            assert outcomes(node) == {"a": [Outcome.ABORTED]}
            refused = await refusal(client.end(commit=True))
            expected = ErrorCode.invalid_txn_state if version == 12 else ErrorCode.producer_fenced
            assert refused is expected

    async def test_one_that_ends_in_the_same_round_is_left_alone(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            client = await prepared(node)
            await client.write("late", 0)
            node.clock.time_ms += DAY_MS
            transactions = node.services.coordinators.transactions
            ending = asyncio.create_task(client.end(commit=True))
            await asyncio.sleep(0)
            transactions.abort_overdue()
            await ending
            await transactions.endings.finish()
            assert outcomes(node)["late"] == [Outcome.COMMITTED]

    async def test_an_id_that_is_used_in_the_same_round_is_kept(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            client = await prepared(node)
            node.clock.time_ms += 8 * DAY_MS
            using = asyncio.create_task(client.begin())
            await asyncio.sleep(0)
            node.services.coordinators.transactions.forget_expired()
            await using
            assert current(node).producer_epoch == 1

    async def test_it_counts_from_before_a_restart(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            client = await prepared(node)
            await client.write("a", 1)
        async with open_node(tmp_path, *SETTINGS) as node:
            node.clock.time_ms += 60_001
            node.services.coordinators.transactions.abort_overdue()
            await node.services.coordinators.transactions.endings.finish()
            assert current(node).state is COMPLETE_ABORT

    async def test_an_id_that_nobody_uses_is_forgotten(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            client = await prepared(node)
            used = Client(node, "used")
            await used.begin()
            await used.write("a", 0)
            node.clock.time_ms += 7 * DAY_MS
            node.services.coordinators.transactions.forget_expired()
            assert node.services.coordinators.transactions.find(NAME) is None
            assert current(node, "used").state is ONGOING
            claimed = begin_producer(node.services.coordinators.transactions, NAME, 1_000, client.producer)
            assert (await claimed).producer_epoch == 0
            (loaded,) = node.services.coordinators.transactions.shards
            await node.services.coordinators.transactions.shards.run(loaded, lambda *_: Change(None))
        async with open_node(tmp_path, *SETTINGS) as node:
            assert {name for name, _ in node.services.coordinators.transactions.all()} == {NAME, "used"}


class TestRestart:
    async def test_what_was_decided_is_finished(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            client = await prepared(node)
            await client.write("a", 0)
            await client.write("a", 1)
            decided = current(node)._replace(
                state=PREPARE_COMMIT, producer_epoch=1, last_producer_epoch=0, client_version=2
            )
            write(node, decided)
        async with open_node(tmp_path, *SETTINGS) as node:
            await node.services.coordinators.transactions.endings.finish()
            assert outcomes(node) == {"a": COMMITTED}
            assert current(node).state is COMPLETE_COMMIT

    async def test_the_next_transaction_is_not_ended_with_the_one_before(self, tmp_path: Path) -> None:
        """The first batch of the next transaction survived a crash, but the records since the decided end did
        not.
        """
        async with open_node(tmp_path, *SETTINGS) as node:
            client = await prepared(node)
            await client.write("a", 0)
            decided = current(node)._replace(
                state=PREPARE_COMMIT, producer_epoch=1, last_producer_epoch=0, client_version=2
            )
            await client.end(commit=True)
            await client.write("b", 0)
            transactions = node.services.coordinators.transactions
            (loaded,) = transactions.shards
            await transactions.shards.run(
                loaded, lambda *_: Change(None, [TransactionRecord(NAME, decided)], True)
            )
        async with open_node(tmp_path, *SETTINGS) as node:
            await node.services.coordinators.transactions.endings.finish()
            assert outcomes(node) == {"a": [Outcome.COMMITTED], "b": [Outcome.OPEN]}
            assert (current(node).state, current(node).partitions) == (ONGOING, {(TOPIC, 0)})
            await settle(node)
            assert outcomes(node) == {"a": [Outcome.COMMITTED], "b": [Outcome.ABORTED]}

    @pytest.mark.parametrize("epoch", [0, 32_766])
    async def test_the_next_transaction_in_another_partition(self, tmp_path: Path, epoch: int) -> None:
        """The first batch of the next transaction, in another partition, survived a crash.

        The coordinator's records since the decided end did not.

        With the last producer epoch, the next transaction has another producer id.
        """
        async with open_node(tmp_path, *SETTINGS) as node:
            client = await prepared(node)
            transactions = node.services.coordinators.transactions
            (loaded,) = transactions.shards
            write(node, current(node)._replace(producer_epoch=epoch))
            client.producer = Producer(client.producer.producer_id, epoch)
            await client.write("a", 0)
            before = current(node)
            await client.end(commit=True)
            await client.write("b", 1)
            next_producer_id = client.producer.producer_id if epoch else -1
            decided = before._replace(
                state=PREPARE_COMMIT,
                producer_epoch=epoch + 1,
                last_producer_epoch=epoch,
                client_version=2,
                next_producer_id=next_producer_id,
            )
            await transactions.shards.run(
                loaded, lambda *_: Change(None, [TransactionRecord(NAME, decided)], True)
            )
        async with open_node(tmp_path, *SETTINGS) as node:
            await node.services.coordinators.transactions.endings.finish()
            assert outcomes(node) == {"a": [Outcome.COMMITTED], "b": [Outcome.OPEN]}
            assert (current(node).state, current(node).partitions) == (ONGOING, {(TOPIC, 1)})
            client.node = node
            await client.end(commit=True)
            assert outcomes(node) == {"a": [Outcome.COMMITTED], "b": [Outcome.COMMITTED]}

    async def test_a_batch_whose_partition_was_forgotten_takes_part_again(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            client = await prepared(node)
            append(node, client.producer, "a")
            assert current(node).partitions == frozenset()
        async with open_node(tmp_path, *SETTINGS) as node:
            assert (current(node).state, current(node).partitions) == (ONGOING, {(TOPIC, 0)})
            await settle(node)
            assert outcomes(node) == {"a": [Outcome.ABORTED]}

    async def test_such_a_batch_does_not_hold_up_the_start_while_nothing_can_be_written(
        self, tmp_path: Path
    ) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            client = await prepared(node)
            append(node, client.producer, "a")
        full = FullDisk()
        async with open_node(tmp_path, *SETTINGS, storage=full) as node:
            with pytest.raises(Unavailable):
                node.services.coordinators.transactions.find(NAME)
            full.has_room = True
            state = partition(node, topic=TRANSACTION_STATE_TOPIC)
            state.log.reopen(node.clock.now_ms())
            state.flush_finished()
            assert current(node).partitions == {(TOPIC, 0)}

    async def test_a_partition_that_is_opened_late_takes_part_again(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            client = await prepared(node)
            append(node, client.producer, "a")
            node.services.partitions.registry.became_ready(TOPIC, 0)
            assert (current(node).state, current(node).partitions) == (ONGOING, {(TOPIC, 0)})

    @pytest.mark.parametrize("has_next_id", [False, True])
    async def test_one_that_is_opened_amid_an_end_takes_part_in_the_next_transaction(
        self, tmp_path: Path, has_next_id: bool
    ) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            client = await prepared(node)
            await client.write("a", 1)
            next_producer = Producer(99, 0) if has_next_id else Producer(client.producer.producer_id, 1)
            decided = current(node)._replace(
                state=PREPARE_COMMIT,
                producer_epoch=1,
                last_producer_epoch=0,
                client_version=2,
                next_producer_id=99 if has_next_id else -1,
            )
            transactions = node.services.coordinators.transactions
            (loaded,) = transactions.shards
            write(node, decided)
            last_offset = loaded.partition.log.log_end_offset - 1
            transactions._begin_ending(NAME, WrittenState(loaded, decided, last_offset))
            append(node, next_producer, "b")
            node.services.partitions.registry.became_ready(TOPIC, 0)
            assert current(node) == decided
            await transactions.endings.finish()
            assert (current(node).state, current(node).partitions) == (ONGOING, {(TOPIC, 0)})
            assert outcomes(node) == {"a": [Outcome.COMMITTED], "b": [Outcome.OPEN]}

    @pytest.mark.parametrize("is_restarted", [False, True])
    async def test_what_a_fenced_producer_left_in_it_is_not_committed_by_the_next(
        self, tmp_path: Path, is_restarted: bool
    ) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            append(node, (await prepared(node)).producer, "a")
            successor = Client(node, NAME)
            await successor.begin()
            if not is_restarted:
                node.services.partitions.registry.became_ready(TOPIC, 0)
                await successor.transact(Attempt("next"), commit=True)
                assert outcomes(node) == {"a": [Outcome.ABORTED], "next": COMMITTED}
        async with open_node(tmp_path, *SETTINGS) as node:
            assert outcomes(node)["a"] == [Outcome.ABORTED]

    async def test_a_stranger_is_told_of_and_left(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            await prepared(node)
            append(node, Producer(4_711, 3), "strange")
        caplog.set_level(logging.WARNING)
        async with open_node(tmp_path, *SETTINGS) as node:
            assert "producer 4711" in caplog.text
            await settle(node)
            assert outcomes(node) == {"strange": [Outcome.OPEN]}


class FullDisk(Storage):
    """Has no room for records of transactions."""

    has_room = False

    def write(self, file: DataFile, buffers: Sequence[bytes | memoryview], position: int) -> int:
        if TRANSACTION_STATE_TOPIC in file.path and not self.has_room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(file, buffers, position)


def append(node: Node, producer: Producer, label: str) -> None:
    """Append a transactional batch without telling the coordinator."""
    batch = Batch((Record(label.encode()),), attributes=TRANSACTIONAL, base_timestamp=node.clock.now_ms()).of(
        *producer, 0
    )
    partition(node).append(batch.encode(), node.clock.now_ms())


class TestPartitionsThatFail:
    async def test_a_topic_that_is_deleted_needs_no_marker(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            client = await prepared(node)
            await create(node, "kept")
            await client.write("a", 0)
            await node.services.coordinators.transactions.add_partitions(
                NAME, client.producer, frozenset({("kept", 0)}), 2
            )
            await delete(node, TOPIC)
            await client.end(commit=True)
            assert current(node).state is COMPLETE_COMMIT
            assert partition(node, topic="kept").log.log_end_offset == 1

    async def test_one_that_can_t_be_written_holds_up_its_own_transactions_only(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(transaction_coordinator, "END_WAIT_S", 0.01)
        disk = new_disk()
        async with open_node(ROOT, *SETTINGS, storage=Storage(disk=disk.process())) as node:
            client = await prepared(node)
            other = Client(node, "other")
            await other.begin()
            await client.write("a", 0)
            await client.write("a", 1)
            fail(disk, node)
            await client.end(commit=True)
            assert current(node).state is PREPARE_COMMIT
            added = node.services.coordinators.transactions.add_partitions(
                NAME, client.producer, frozenset({(TOPIC, 1)}), 2
            )
            assert await refusal(added) is ErrorCode.concurrent_transactions
            assert await refusal(Client(node, NAME).begin()) is ErrorCode.concurrent_transactions
            monkeypatch.undo()
            await other.write("b", 1)
            await other.end(commit=True)
            assert current(node, "other").state is COMPLETE_COMMIT
            disk.plan.heal()
            partition(node).log.reopen(node.clock.now_ms())
            partition(node).flush_finished()
            await node.services.coordinators.transactions.endings.finish()
            assert current(node).state is COMPLETE_COMMIT
            assert outcomes(node) == {"a": COMMITTED, "b": [Outcome.COMMITTED]}

    async def test_when_the_state_is_lost_it_is_loaded_anew(self, tmp_path: Path) -> None:
        disk = new_disk()
        async with open_node(ROOT, *SETTINGS, storage=Storage(disk=disk.process())) as node:
            client = await prepared(node)
            await client.write("a", 0)
            await client.write("a", 1)
            disk.plan.fail_at = disk.plan.operations + 1
            assert await refusal(client.end(commit=True)) is ErrorCode.not_coordinator
            disk.plan.heal()
            state = partition(node, topic=TRANSACTION_STATE_TOPIC)
            state.log.reopen(node.clock.now_ms())
            state.flush_finished()
            assert current(node).state is ONGOING
            await client.end(commit=True)
            assert outcomes(node) == {"a": COMMITTED}


def fail(disk: SimulatedDisk, node: Node) -> None:
    """Take the topic's first partition offline."""
    disk.plan.fail_at = disk.plan.operations + 1
    with pytest.raises(StorageFailed):
        partition(node).append(Batch(base_timestamp=node.clock.now_ms()).encode(), node.clock.now_ms())
    disk.plan.heal()
    assert partition(node).log.offline


class TestVerification:
    @pytest.mark.parametrize(
        ("version", "code"), [(9, ErrorCode.invalid_txn_state), (11, ErrorCode.transaction_abortable)]
    )
    async def test_before_v12_a_partition_must_have_been_added(
        self, tmp_path: Path, version: int, code: ErrorCode
    ) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            client = await prepared(node, version)
            with pytest.raises(Refused) as refused:
                client.append("a", 0)
            assert refused.value.args[0].error_code == code
            await client.write("a", 0)

    async def test_it_can_be_left_out(self, tmp_path: Path) -> None:
        off = "transaction.partition.verification.enable=false"
        async with open_node(tmp_path, *SETTINGS, off) as node:
            client = await prepared(node, 11)
            assert client.append("a", 0) == 0
            assert partition(node).log.log_end_offset == 1
            assert current(node).partitions == frozenset()

    @pytest.mark.parametrize(
        ("version", "busy"), [(11, ErrorCode.not_enough_replicas), (12, ErrorCode.concurrent_transactions)]
    )
    async def test_what_a_batch_is_refused_with(self, tmp_path: Path, version: int, busy: ErrorCode) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            client = await prepared(node, version)
            real = client.producer
            for producer, code in (
                (Producer(real.producer_id, 5), ErrorCode.invalid_producer_epoch),
                (Producer(4_711, 0), ErrorCode.invalid_producer_id_mapping),
            ):
                client.producer = producer
                with pytest.raises(Refused) as refused:
                    client.append("a", 0)
                assert refused.value.args[0].error_code == code
            (loaded,) = node.services.coordinators.transactions.shards
            decided = current(node)._replace(state=PREPARE_COMMIT)
            loaded.shard.replay(TransactionRecord(NAME, decided), 0)
            client.producer = real
            with pytest.raises(Refused) as refused:
                client.append("a", 0)
            assert refused.value.args[0].error_code == busy
            node.services.coordinators.transactions.shards.lose(loaded)
