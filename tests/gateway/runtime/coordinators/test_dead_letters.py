"""Dead letters on real logs: what they say, where they go, and that a crash neither loses nor doubles one."""

from __future__ import annotations

import asyncio
import shutil
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.share.share_partition import Acknowledgement, SharePartition, StateBatch
from seqgate.gateway.handlers.records import delete_records
from seqgate.gateway.metadata.image import GROUP_RESOURCE, TOPIC_RESOURCE
from seqgate.gateway.protocol.frames import topic_id_text
from seqgate.gateway.protocol.messages import build
from seqgate.gateway.runtime.coordinators import dead_letters
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.log import Appended
from seqgate.log.format.records import NewRecord, Record, build_batch, build_end_marker
from tests.gateway.handlers.requests import alter, create, delete
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.gateway.runtime.share_requests import (
    GROUP,
    SETTINGS,
    TOPIC,
    acknowledge,
    acquired,
    append,
    begin,
    fetch,
    key_of,
)

ACCEPT, RELEASE, REJECT = 1, 2, 3
LETTERS = "dlq.flights"
ENABLED = {"errors.deadletterqueue.group.enable": "true"}
REJECTED = "Offset rejected by client."
TOO_OFTEN = "Offset delivery count exceeded the threshold."


async def begin_with_letters(
    node: Node, configs: dict[str, str | None] | None = None, *, name: str = LETTERS, copies: bool = True
) -> uuid.UUID:
    """Begin a group whose dead letters go to a topic; return the id of the topic that the group reads."""
    topic_id = await begin(node)
    if configs is not None:
        await create(node, name, configs=configs)
    group = {"errors.deadletterqueue.topic.name": name, "share.auto.offset.reset": "earliest"}
    copy = {"errors.deadletterqueue.copy.record.enable": "true"} if copies else {}
    await alter(node, GROUP_RESOURCE, GROUP, {**group, **copy})
    return topic_id


async def write(node: Node, *values: bytes) -> None:
    records = [
        NewRecord(value, key=b"k" + value, timestamp=NOW_MS, headers=[("of", b"h" + value)])
        for value in values
    ]
    await append(node, build_batch(records))


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():
            await asyncio.sleep(0.001)


async def written(node: Node) -> None:
    """Wait until no letter is left to write."""
    key = key_of(node)
    shares = node.services.coordinators.shares

    def is_idle() -> bool:
        found = shares.find(key)
        return not node.services.coordinators.letters and (found is None or not found.is_sending)

    await until(is_idle)


def letters(node: Node, name: str = LETTERS, partition: int = 0) -> list[Record]:
    found = node.services.partitions.registry.get(name, partition)
    return [] if found is None else list(found.log.replay_records(0))


async def delete_before(node: Node, offset: int) -> None:
    def make(module: Any) -> dict[str, Any]:
        row = build(module.DeleteRecordsPartition, partition_index=0, offset=offset)
        topic = build(module.DeleteRecordsTopic, name=TOPIC, partitions=(row,))
        return {"topics": (topic,), "timeout": timedelta(seconds=1)}

    await node.ask(delete_records.API, 2, make)


def places(records: list[Record]) -> list[str]:
    return [told(record)["__dlq.errors.offset"] for record in records]


def told(record: Record) -> dict[str, str]:
    return {name: (value or b"").decode() for name, value in record.headers}


def start_offset(node: Node) -> int:
    found = node.services.coordinators.shares.find(key_of(node))
    assert found is not None
    return found.start_offset


def error_of(answer: Any) -> Any:
    return answer.responses[0].partitions[0].error_code


class TestWhatALetterSays:
    async def test_a_rejected_record_goes_with_its_content(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            topic_id = await begin_with_letters(node, ENABLED)
            await write(node, b"a", b"b", b"c")
            assert acquired(await fetch(node, topic_id)) == [(0, 2)]
            node.clock.time_ms += 5
            assert error_of(await acknowledge(node, topic_id, 1, 1, REJECT)) is ErrorCode.none
            await written(node)
            (letter,) = letters(node)
            assert (letter.key, letter.value, letter.timestamp) == (b"kb", b"b", NOW_MS + 5)
            assert letter.headers == (
                ("of", b"hb"),
                ("__dlq.errors.topic", TOPIC.encode()),
                ("__dlq.errors.partition", b"0"),
                ("__dlq.errors.offset", b"1"),
                ("__dlq.errors.group", GROUP.encode()),
                ("__dlq.errors.delivery.count", b"1"),
                ("__dlq.errors.message", REJECTED.encode()),
            )
            assert start_offset(node) == 0
            await acknowledge(node, topic_id, 0, 0, ACCEPT, session_epoch=2)
            assert start_offset(node) == 2

    async def test_without_copies_it_has_the_place_only(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            topic_id = await begin_with_letters(node, ENABLED, copies=False)
            await write(node, b"a")
            await fetch(node, topic_id)
            await acknowledge(node, topic_id, 0, 0, REJECT)
            await written(node)
            (letter,) = letters(node)
            assert (letter.key, letter.value) == (None, None)
            assert list(told(letter)) == [
                "__dlq.errors.topic",
                "__dlq.errors.partition",
                "__dlq.errors.offset",
                "__dlq.errors.group",
                "__dlq.errors.delivery.count",
                "__dlq.errors.message",
            ]

    async def test_a_record_is_given_up_after_too_many_deliveries(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS, "group.share.delivery.count.limit=2") as node:
            topic_id = await begin_with_letters(node, ENABLED)
            await write(node, b"a")
            await fetch(node, topic_id)
            await acknowledge(node, topic_id, 0, 0, RELEASE)
            assert not letters(node)
            await fetch(node, topic_id, session_epoch=2)
            await acknowledge(node, topic_id, 0, 0, RELEASE, session_epoch=3)
            await written(node)
            (letter,) = letters(node)
            assert told(letter)["__dlq.errors.message"] == TOO_OFTEN
            assert told(letter)["__dlq.errors.delivery.count"] == "2"
            assert start_offset(node) == 1

    async def test_markers_leave_none_and_records_of_aborted_transactions_do(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS, "group.share.delivery.count.limit=2") as node:
            topic_id = await begin_with_letters(node, ENABLED)
            producer = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
            await append(
                node,
                build_batch([NewRecord(b"a", timestamp=NOW_MS)], is_transactional=True, **producer),  # type: ignore[arg-type]
            )
            partition = node.services.partitions.registry.get(TOPIC, 0)
            assert partition is not None
            marker = build_end_marker(5, 0, commit=False, coordinator_epoch=0, now_ms=NOW_MS)
            assert await partition.persisted(partition.append(marker, NOW_MS, is_client=False).last_offset)
            for epoch in (0, 2):
                assert acquired(await fetch(node, topic_id, session_epoch=epoch)) == [(0, 1)]
                await acknowledge(node, topic_id, 0, 1, RELEASE, session_epoch=epoch + 1)
            await written(node)
            assert [(record.value, record.offset) for record in letters(node)] == [(b"a", 0)]
            assert start_offset(node) == 2

    async def test_records_of_one_batch_are_read_and_decoded_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Every second record dies, so that the round has many letters in each batch."""
        plain, decoded = dead_letters.iterate_records, 0

        def iterate(*said: Any, **named: Any) -> Any:
            nonlocal decoded
            decoded += 1
            return plain(*said, **named)

        monkeypatch.setattr(dead_letters, "iterate_records", iterate)
        async with open_node(tmp_path, *SETTINGS) as node:
            topic_id = await begin_with_letters(node, ENABLED)
            for _ in range(3):
                await write(node, *[b"%d" % number for number in range(40)])
            await fetch(node, topic_id)
            said = Acknowledgement(0, 119, (REJECT, ACCEPT) * 60)
            await node.services.coordinators.shares.acknowledge(key_of(node), "a", [said])
            await written(node)
            assert [int(told(letter)["__dlq.errors.offset"]) for letter in letters(node)] == [
                *range(0, 120, 2)
            ]
            assert [letter.value for letter in letters(node)] == [b"%d" % n for n in range(0, 40, 2)] * 3
            assert decoded == 3

    async def test_a_record_that_retention_has_deleted_leaves_its_place(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            topic_id = await begin_with_letters(node, ENABLED)
            await write(node, b"a")
            await write(node, b"b")
            await fetch(node, topic_id)
            node.services.coordinators.letters.stop()
            await acknowledge(node, topic_id, 0, 0, REJECT)
            partition = node.services.partitions.registry.get(TOPIC, 0)
            assert partition is not None
            await delete_before(node, 1)
            await node.services.coordinators.shares.open(key_of(node), partition)
            assert start_offset(node) == 0, "its letter is not written"
        async with open_node(tmp_path, *SETTINGS) as node:
            await until(lambda: len(letters(node)) == 1)
            (letter,) = letters(node)
            assert (letter.value, told(letter)["__dlq.errors.offset"]) == (None, "0")
            await until(lambda: start_offset(node) == 1)


class TestWhereLettersGo:
    async def test_the_topic_is_created_if_that_is_allowed(self, tmp_path: Path) -> None:
        allowed = "errors.deadletterqueue.auto.create.topics.enable=true"
        async with open_node(tmp_path, *SETTINGS, allowed) as node:
            topic_id = await begin_with_letters(node)
            await write(node, b"a")
            await fetch(node, topic_id)
            await acknowledge(node, topic_id, 0, 0, REJECT)
            await written(node)
            assert places(letters(node)) == ["0"]
            image = node.services.topics.metadata_log.image
            assert image.topic_configs(LETTERS) == {**ENABLED, "message.timestamp.type": "CreateTime"}

    @pytest.mark.parametrize(
        ("name", "configs"),
        [
            pytest.param(LETTERS, None, id="there is no topic"),
            pytest.param(LETTERS, {}, id="the topic does not allow letters"),
            pytest.param("flights.dead", ENABLED, id="the name has another prefix"),
        ],
    )
    async def test_without_a_topic_that_allows_letters_records_are_archived(
        self, tmp_path: Path, name: str, configs: dict[str, str | None] | None
    ) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            topic_id = await begin_with_letters(node, configs, name=name)
            await write(node, b"a", b"b")
            await fetch(node, topic_id)
            await acknowledge(node, topic_id, 0, 1, REJECT)
            await written(node)
            assert not letters(node, name)
            assert start_offset(node) == 2
            assert node.services.coordinators.letters.lost == {GROUP: 2}

    async def test_letters_too_large_for_one_batch_go_with_several(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            topic_id = await begin_with_letters(node, {**ENABLED, "max.message.bytes": "1500"})
            await write(node, *(bytes([65 + number]) * 300 for number in range(9)), b"z" * 2_000)
            await fetch(node, topic_id)
            await acknowledge(node, topic_id, 0, 9, REJECT)
            await written(node)
            found = letters(node)
            assert sorted(map(int, places(found))) == list(range(10))
            assert [record.value for record in found if record.value is None] == [None]
            assert (
                told(next(record for record in found if record.value is None))["__dlq.errors.offset"] == "9"
            )
            assert start_offset(node) == 10

    async def test_the_size_that_fits_a_batch_is_found_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """40 letters of which 4 fit a batch, then one that never fits, then 100 small ones."""
        rounds: list[int] = []
        splits: list[int] = []
        plain_end, plain_split = SharePartition.end_round, SharePartition.split_round

        def end_round(state: SharePartition, *said: int) -> list[StateBatch]:
            rounds.append(sum(last - first + 1 for first, last, *_ in state.letters()))
            return plain_end(state, *said)

        def split_round(state: SharePartition, *said: int) -> list[StateBatch]:
            splits.append(len(rounds))
            return plain_split(state, *said)

        monkeypatch.setattr(SharePartition, "end_round", end_round)
        monkeypatch.setattr(SharePartition, "split_round", split_round)
        async with open_node(tmp_path, *SETTINGS) as node:
            topic_id = await begin_with_letters(node, {**ENABLED, "max.message.bytes": "9000"})
            await alter(node, TOPIC_RESOURCE, LETTERS, {"compression.type": "uncompressed"})
            await write(node, *(b"%d" % number * 200 for number in range(100, 140)))
            await write(node, b"z" * 10_000)
            await write(node, *(b"%d" % number for number in range(100)))
            assert acquired(await fetch(node, topic_id, max_records=1_000)) != []
            said = Acknowledgement(0, 140, (REJECT,))
            await node.services.coordinators.shares.acknowledge(key_of(node), "a", [said])
            await written(node)
            assert sorted(int(place) for place in places(letters(node))) == list(range(141))
            assert sum(rounds) == 141
            large = [number for number in splits if sum(rounds[:number]) < 36]
            assert large == [0] * len(large), "the size that fitted is remembered"
            assert len(splits) < 10
            assert rounds[-2] > 15, "small letters go together again"

    async def test_a_topic_that_deduplicates_by_name_takes_all_letters(self, tmp_path: Path) -> None:
        """The record with the higher sequence id dies first, and then it is sent with its name."""
        async with open_node(tmp_path, *SETTINGS, "log.message.deduplication.enable=true") as node:
            topic_id = await begin_with_letters(node, ENABLED)
            named = [
                NewRecord(b"v", timestamp=NOW_MS, headers=[("dedup.name", b"n"), ("dedup.sequence", number)])
                for number in (b"1", b"2")
            ]
            await append(node, build_batch(named))
            await fetch(node, topic_id)
            await acknowledge(node, topic_id, 1, 1, REJECT)
            await written(node)
            await acknowledge(node, topic_id, 0, 0, REJECT, session_epoch=2)
            await written(node)
            assert places(letters(node)) == ["1", "0"]

    async def test_letters_of_the_dead_letter_topic_itself_are_not_written(self, tmp_path: Path) -> None:
        """A group that reads its own dead letters would get each letter again for ever."""
        async with open_node(tmp_path, *SETTINGS, "errors.deadletterqueue.topic.name.prefix=") as node:
            topic_id = await begin_with_letters(node, name=TOPIC)
            await alter(node, TOPIC_RESOURCE, TOPIC, dict(ENABLED))
            await write(node, b"a")
            await fetch(node, topic_id)
            await acknowledge(node, topic_id, 0, 0, REJECT)
            await written(node)
            assert len(letters(node, TOPIC)) == 1
            assert node.services.coordinators.letters.lost[GROUP] == 1

    async def test_letters_wait_for_a_topic_that_can_not_be_written_to(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            topic_id = await begin_with_letters(node, ENABLED)
            await write(node, b"a")
            await fetch(node, topic_id)
            partition = node.services.partitions.registry.get(LETTERS, 0)
            assert partition is not None
            partition.is_handed_over = True
            assert error_of(await acknowledge(node, topic_id, 0, 0, REJECT)) is ErrorCode.none
            await until(lambda: len(node.services.coordinators.letters) == 1)
            assert acquired(await fetch(node, topic_id, session_epoch=2)) == []
            partition.is_handed_over = False
            await written(node)
            assert places(letters(node)) == ["0"]

    async def test_a_mistake_does_not_stop_the_letters(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mistakes = [ZeroDivisionError()]
        headers_of = dead_letters.headers_of

        def headers(*said: Any) -> Any:
            if mistakes:
                raise mistakes.pop()
            return headers_of(*said)

        monkeypatch.setattr(dead_letters, "headers_of", headers)
        async with open_node(tmp_path, *SETTINGS) as node:
            topic_id = await begin_with_letters(node, ENABLED)
            await write(node, b"a")
            await fetch(node, topic_id)
            await acknowledge(node, topic_id, 0, 0, REJECT)
            await written(node)
            assert places(letters(node)) == ["0"]

    async def test_letters_that_wait_are_lost_with_the_groups_topic(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            topic_id = await begin_with_letters(node, ENABLED)
            await write(node, b"a")
            await fetch(node, topic_id)
            partition = node.services.partitions.registry.get(LETTERS, 0)
            assert partition is not None
            partition.is_handed_over = True
            await acknowledge(node, topic_id, 0, 0, REJECT)
            await until(lambda: len(node.services.coordinators.letters) == 1)
            await alter(node, GROUP_RESOURCE, GROUP, {"errors.deadletterqueue.topic.name": None})
            await written(node)
            assert start_offset(node) == 1
            assert node.services.coordinators.letters.lost == {GROUP: 1}


class TestDeletion:
    async def test_a_deleted_topic_leaves_the_letters_that_were_due(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            topic_id = await begin_with_letters(node, ENABLED)
            key = key_of(node)
            await write(node, b"a")
            await fetch(node, topic_id)
            partition = node.services.partitions.registry.get(LETTERS, 0)
            assert partition is not None
            partition.is_handed_over = True
            await acknowledge(node, topic_id, 0, 0, REJECT)
            await delete(node, TOPIC)
            partition.is_handed_over = False
            shares = node.services.coordinators.shares
            await until(lambda: shares.find(key) is None)
            (letter,) = letters(node)
            assert told(letter)["__dlq.errors.topic"] == topic_id_text(topic_id)

    async def test_a_group_created_anew_writes_letters_of_its_own(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            topic_id = await begin_with_letters(node, ENABLED)
            await write(node, b"a")
            for _ in range(2):
                shares = node.services.coordinators.shares
                await fetch(node, topic_id)
                await acknowledge(node, topic_id, 0, 0, REJECT)
                await written(node)
                await shares.begin_at(key_of(node), 0)
                node.clock.time_ms += 1
            assert places(letters(node)) == ["0", "0"]

    async def test_a_round_of_a_group_before_does_not_end_that_of_the_group_after(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The offsets of the group are reset while its first round is being written. Both rounds have number
        1, and the end of the former must leave the letters of the latter to be written.
        """
        async with open_node(tmp_path, *SETTINGS) as node:
            topic_id = await begin_with_letters(node, ENABLED)
            await write(node, b"a", b"b")
            plain, is_reset, rounds = Partition.persisted, asyncio.Event(), 0

            async def persisted(partition: Partition, offset: int) -> bool:
                nonlocal rounds
                if partition.topic == LETTERS:
                    rounds += 1
                    if rounds == 1:
                        await is_reset.wait()
                return await plain(partition, offset)

            monkeypatch.setattr(Partition, "persisted", persisted)
            await fetch(node, topic_id)
            await acknowledge(node, topic_id, 0, 0, REJECT)
            await until(lambda: rounds == 1)
            await node.services.coordinators.shares.begin_at(key_of(node), 0)
            node.clock.time_ms += 1
            await fetch(node, topic_id)
            await acknowledge(node, topic_id, 1, 1, REJECT)
            is_reset.set()
            await written(node)
            assert places(letters(node)) == ["0", "1"]


class TestSkipping:
    @pytest.mark.parametrize("is_killed", [False, True])
    async def test_what_a_member_holds_does_not_come_again(self, tmp_path: Path, is_killed: bool) -> None:
        """The group moves on to offset 3 while a letter waits, so that its start offset stays."""
        async with open_node(tmp_path, *SETTINGS) as node:
            topic_id = await begin_with_letters(node, ENABLED)
            await write(node, b"a", b"b", b"c", b"d")
            await fetch(node, topic_id)
            letters_of, source = (node.services.partitions.registry.get(name, 0) for name in (LETTERS, TOPIC))
            assert letters_of is not None
            assert source is not None
            letters_of.is_handed_over = True
            await acknowledge(node, topic_id, 0, 0, REJECT)
            shares = node.services.coordinators.shares
            assert await shares.skip_to(key_of(node), source, 3) == 3
            assert start_offset(node) == 0
            if not is_killed:
                shares.release_member(GROUP, "a")
                letters_of.is_handed_over = False
                await written(node)
                assert start_offset(node) == 3
                assert acquired(await fetch(node, topic_id, "b")) == [(3, 3)]
            node.services.coordinators.letters.stop()
        async with open_node(tmp_path, *SETTINGS) as node:
            await written(node)
            assert acquired(await fetch(node, topic_id, "b")) == [(3, 3)]
            assert places(letters(node)) == ["0"]


class TestCrashes:
    async def test_a_letter_is_written_once_wherever_the_gateway_was_killed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Before and after each write of the dead-letter topic and of the state, a copy of all files is made,
        and a gateway is started on each copy.
        """
        home, copies = tmp_path / "home", tmp_path / "copies"
        plain = Partition.append

        def copy() -> None:
            shutil.copytree(home, copies / f"{len(list(copies.iterdir())):03}")

        def append_and_copy(partition: Partition, *said: Any, **named: Any) -> Appended:
            if partition.topic not in {LETTERS, "__share_group_state"}:
                return plain(partition, *said, **named)
            copy()
            info = plain(partition, *said, **named)
            copy()
            return info

        async with open_node(home, *SETTINGS) as node:
            topic_id = await begin_with_letters(node, ENABLED)
            await write(node, b"a", b"b", b"c")
            await fetch(node, topic_id)
            copies.mkdir()
            monkeypatch.setattr(Partition, "append", append_and_copy)
            await acknowledge(node, topic_id, 0, 1, REJECT)
            await written(node)
            monkeypatch.undo()
            copy()
        seen = set()
        for directory in sorted(copies.iterdir()):
            async with open_node(directory, *SETTINGS) as node:
                await written(node)
                dead = tuple(places(letters(node)))
                got = acquired(await fetch(node, topic_id))
                assert (dead, got) in [((), [(0, 2)]), (("0", "1"), [(2, 2)])], directory
                seen.add(dead)
        assert seen == {(), ("0", "1")}, "there were kills before the records died, and after"

    async def test_a_round_written_twice_is_a_duplicate(self, tmp_path: Path) -> None:
        async with open_node(tmp_path, *SETTINGS) as node:
            topic_id = await begin_with_letters(node, ENABLED)
            await write(node, b"a", b"b")
            await fetch(node, topic_id)
            shares = node.services.coordinators.shares

            async def refused(*_: Any) -> None:
                raise Unavailable

            plain, shares.change_letters = shares.change_letters, refused  # type: ignore[method-assign]
            await acknowledge(node, topic_id, 0, 0, REJECT)
            await until(lambda: node.services.coordinators.letters.written[GROUP] >= 2)
            assert places(letters(node)) == ["0"]
            shares.change_letters = plain  # type: ignore[method-assign]
            await written(node)
            assert places(letters(node)) == ["0"]
            assert start_offset(node) == 1

    async def test_a_gateway_that_was_down_for_days_writes_no_letter_again(self, tmp_path: Path) -> None:
        """Another gateway leads the dead-letter topic meanwhile, and forgets idle producers."""
        async with open_node(tmp_path, *SETTINGS) as node:
            topic_id = await begin_with_letters(node, ENABLED)
            await write(node, b"a", b"b")
            await fetch(node, topic_id)
            shares = node.services.coordinators.shares

            async def refused(*_: Any) -> None:
                raise Unavailable

            plain, shares.change_letters = shares.change_letters, refused  # type: ignore[method-assign]
            await acknowledge(node, topic_id, 0, 0, REJECT)
            await until(lambda: node.services.coordinators.letters.written[GROUP] >= 1)
            partition = node.services.partitions.registry.get(LETTERS, 0)
            assert partition is not None
            node.clock.time_ms += 3 * partition.log.config.producer_id_expiration_ms
            partition.log.expire_producers(node.clock.time_ms)
            shares.change_letters = plain  # type: ignore[method-assign]
            await written(node)
            assert places(letters(node)) == ["0"]
