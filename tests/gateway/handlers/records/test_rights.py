"""Records are written to and read from topics that the client may write to and read; a refusal does not
reveal whether the topic exists.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.handlers.answering.api import CloseConnection, NotRepeated
from seqgate.gateway.handlers.records import produce
from seqgate.gateway.handlers.records.produce import ProduceRepeats
from seqgate.gateway.protocol.produce_codec import ProduceRequest
from seqgate.gateway.security.acls.access import AclEntry, Operation, PatternType, Permission, ResourceType
from seqgate.gateway.security.acls.authorizer import Authorizer
from tests.gateway.handlers.asking import Asking, answer_to
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.rights import Rights
from tests.gateway.handlers.support import NOW_MS, Node, open_node
from tests.support.batches import Batch, records

NONE, UNKNOWN, INVALID_TOPIC, DENIED, CLUSTER_DENIED = 0, 3, 17, 29, 31
INVALID_ACKS, ID_DENIED, NOT_LEADER, UNKNOWN_ID = 21, 53, 6, 100
TOPICS = ["mine", "hidden", "none"]
"""A topic with the right, a topic without, and a name without either topic or right."""
TRANSACTIONAL = 0x10


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path) as opened:
        for name in ("mine", "hidden"):
            await create(opened, name)
        yield opened


@pytest.fixture
def rights(node: Node) -> Rights:
    """The rights of every client: none at first."""
    rights = Rights()
    node.services.node.access = rights
    return rights


@pytest.fixture
def client(node: Node) -> Asking:
    return Asking(node)


def topic_id(node: Node, name: str) -> str:
    return str(node.services.topics.metadata_log.image.topics_by_name[name].topic_id)


def batch(sequence: int = 0, producer_id: int = 7) -> bytes:
    return Batch(records(1), base_timestamp=NOW_MS).of(producer_id, 0, sequence).encode()


def end_offset(node: Node, name: str) -> int:
    partition = node.services.partitions.registry.get(name, 0)
    assert partition is not None
    return partition.log.log_end_offset


class TestProduce:
    @staticmethod
    def fields(names: list[str], records: bytes, **more: Any) -> dict[str, Any]:
        rows = [{"index": 0, "records": records}]
        topics = [{"name": name, "partition_data": rows} for name in names]
        return {"acks": -1, "timeout": 30_000, "topic_data": topics, **more}

    async def produce(self, client: Asking, names: list[str], **more: Any) -> dict[str, dict[str, Any]]:
        answer = await client.ask("produce", 12, **self.fields(names, batch(), **more))
        return {row["name"]: row["partition_responses"][0] for row in answer["responses"]}

    @pytest.mark.parametrize("version", range(3, 13))
    async def test_only_topics_with_write_get_records(
        self, node: Node, rights: Rights, client: Asking, version: int
    ) -> None:
        rights.allow(Operation.WRITE, ResourceType.TOPIC, "mine")
        answer = await client.ask("produce", version, **self.fields(TOPICS, batch()))
        codes = {row["name"]: row["partition_responses"][0]["error_code"] for row in answer["responses"]}
        assert codes == {"mine": NONE, "hidden": DENIED, "none": DENIED}
        assert (end_offset(node, "mine"), end_offset(node, "hidden")) == (1, 0)

    async def test_the_answer_does_not_tell_whether_a_topic_exists(
        self, rights: Rights, client: Asking
    ) -> None:
        rows = await self.produce(client, ["hidden", "none"])
        assert rows["hidden"] == rows["none"]
        assert rows["hidden"]["error_message"] is None

    async def test_with_the_right_a_missing_topic_is_unknown(self, rights: Rights, client: Asking) -> None:
        rights.allow(Operation.WRITE, ResourceType.TOPIC, "none")
        assert (await self.produce(client, ["none"]))["none"]["error_code"] == UNKNOWN

    async def test_ids_of_hidden_topics_are_denied_and_unknown_ids_are_unknown(
        self, node: Node, rights: Rights, client: Asking
    ) -> None:
        rights.allow(Operation.WRITE, ResourceType.TOPIC, "mine")
        unknown = str(uuid.UUID(int=5))
        ids = [topic_id(node, "mine"), topic_id(node, "hidden"), unknown]
        topics = [{"topic_id": each, "partition_data": [{"index": 0, "records": batch()}]} for each in ids]
        answer = await client.ask("produce", 13, acks=-1, timeout=30_000, topic_data=topics)
        codes = {row["topic_id"]: row["partition_responses"][0]["error_code"] for row in answer["responses"]}
        assert [codes[each] for each in ids] == [NONE, DENIED, UNKNOWN_ID]

    async def test_the_right_comes_before_the_refusal_of_internal_topics(
        self, node: Node, rights: Rights, client: Asking
    ) -> None:
        internal = "__consumer_offsets"
        rights.allow(Operation.CREATE, ResourceType.TOPIC, internal)
        await create(node, internal)
        assert (await self.produce(client, [internal]))[internal]["error_code"] == DENIED
        rights.allow(Operation.WRITE, ResourceType.TOPIC, internal)
        assert (await self.produce(client, [internal]))[internal]["error_code"] == INVALID_TOPIC

    @pytest.mark.parametrize("names", [["mine"], ["mine", "hidden"]])
    async def test_a_transactional_batch_without_write_on_its_id_refuses_all_partitions(
        self, node: Node, rights: Rights, client: Asking, names: list[str]
    ) -> None:
        rights.allow(Operation.WRITE, ResourceType.TOPIC, "mine")
        transactional = (
            Batch(records(1), attributes=TRANSACTIONAL, base_timestamp=NOW_MS).of(7, 0, 0).encode()
        )
        fields = self.fields(names, transactional, transactional_id="tx")
        answer = await client.ask("produce", 12, **fields)
        assert [row["partition_responses"][0]["error_code"] for row in answer["responses"]] == [
            ID_DENIED
        ] * len(names)
        assert end_offset(node, "mine") == 0
        rights.allow(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "tx")
        answer = await client.ask("produce", 12, **fields)
        assert ID_DENIED not in [row["partition_responses"][0]["error_code"] for row in answer["responses"]]

    async def test_an_id_without_transactional_batches_needs_no_right(
        self, rights: Rights, client: Asking
    ) -> None:
        rights.allow(Operation.WRITE, ResourceType.TOPIC, "mine")
        rows = await self.produce(client, ["mine"], transactional_id="tx")
        assert rows["mine"]["error_code"] == NONE

    @pytest.mark.parametrize("names", [["hidden"], TOPICS])
    async def test_without_acknowledgement_a_refusal_closes_the_connection(
        self, rights: Rights, client: Asking, names: list[str]
    ) -> None:
        rights.allow(Operation.WRITE, ResourceType.TOPIC, "mine")
        with pytest.raises(CloseConnection):
            client.begin("produce", 12, **self.fields(names, batch(), acks=0))

    async def test_a_wrong_acks_does_not_hide_the_missing_right(self, rights: Rights, client: Asking) -> None:
        rights.allow(Operation.WRITE, ResourceType.TOPIC, "mine")
        rows = await self.produce(client, TOPICS, acks=2)
        assert {name: row["error_code"] for name, row in rows.items()} == {
            "mine": INVALID_ACKS,
            "hidden": DENIED,
            "none": DENIED,
        }

    async def test_a_denied_batch_does_not_open_the_partition(
        self, node: Node, rights: Rights, client: Asking
    ) -> None:
        before = node.services.partitions.registry.opened_count
        await self.produce(client, ["hidden"])
        assert node.services.partitions.registry.opened_count == before

    @pytest.mark.parametrize("transactional_id", [None, "tx"])
    async def test_only_what_the_client_may_write_is_held(
        self,
        node: Node,
        rights: Rights,
        client: Asking,
        monkeypatch: pytest.MonkeyPatch,
        transactional_id: str | None,
    ) -> None:
        held: list[list[str | bytes]] = []

        def hold(_: object, request: ProduceRequest, __: object) -> None:
            held.append([topic.key for topic in request.topics])

        monkeypatch.setattr(produce, "hold", hold)
        node.services.upkeep.backlog.holds = True
        rights.allow(Operation.WRITE, ResourceType.TOPIC, "mine")
        attributes = 0 if transactional_id is None else TRANSACTIONAL
        sent = Batch(records(1), attributes=attributes, base_timestamp=NOW_MS).of(7, 0, 0).encode()
        await client.ask("produce", 12, **self.fields(TOPICS, sent, transactional_id=transactional_id))
        assert held == ([] if transactional_id else [["mine"]])

    @pytest.mark.parametrize("has_room", [True, False])
    async def test_many_topics_are_checked_in_slices_where_there_is_room_to_keep_them(
        self, node: Node, rights: Rights, client: Asking, monkeypatch: pytest.MonkeyPatch, has_room: bool
    ) -> None:
        room = node.services.upkeep.backlog.held.room
        if not has_room:
            monkeypatch.setattr(type(room), "try_keep", lambda *_: False)
        rights.allow(Operation.WRITE, ResourceType.TOPIC, "mine")
        names = [*(f"none-{number}" for number in range(produce.MANY_PARTITIONS)), "hidden", "mine"]
        deferred = client.begin("produce", 12, **self.fields(names, batch()))
        assert deferred.holds_back is has_room
        answer = await answer_to("produce", 12, deferred)
        codes = {row["name"]: row["partition_responses"][0]["error_code"] for row in answer["responses"]}
        assert codes == {**dict.fromkeys(names, DENIED), "mine": NONE}
        assert (end_offset(node, "mine"), end_offset(node, "hidden")) == (1, 0)

    async def test_partitions_named_twice_are_refused_once(self, rights: Rights, client: Asking) -> None:
        answer = await client.ask("produce", 12, **self.fields(["hidden", "hidden"], batch()))
        assert [len(row["partition_responses"]) for row in answer["responses"]] == [1]


class TestRememberedPrefix:
    """A Produce that repeats the prefix of an earlier one has its right checked like any other."""

    @pytest.fixture
    def authorizer(self, node: Node) -> Authorizer:
        authorizer = Authorizer()
        node.services.node.access = authorizer
        return authorizer

    @pytest.fixture
    def taken(self, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
        """Whether the gateway answered each request from its table of repeats, without decoding the request."""
        taken: list[bool] = []
        begin = ProduceRepeats.begin

        def noted(repeats: ProduceRepeats, *arguments: Any) -> Any:
            begun = begin(repeats, *arguments)
            taken.append(not isinstance(begun, NotRepeated))
            return begun

        monkeypatch.setattr(ProduceRepeats, "begin", noted)
        return taken

    @staticmethod
    def entry(principal: str, host: str = "*", permission: Permission = Permission.ALLOW) -> AclEntry:
        return AclEntry(
            ResourceType.TOPIC, "mine", PatternType.LITERAL, principal, host, Operation.WRITE, permission
        )

    async def produce(self, client: Asking, sequence: int, version: int = 9) -> int:
        rows = [{"index": 0, "records": batch(sequence)}]
        fields = {"acks": -1, "timeout": 1, "topic_data": [{"name": "mine", "partition_data": rows}]}
        answer = await client.ask("produce", version, **fields)
        return int(answer["responses"][0]["partition_responses"][0]["error_code"])

    async def test_serves_only_principals_with_the_right(
        self, node: Node, authorizer: Authorizer, taken: list[bool]
    ) -> None:
        authorizer.add(self.entry("User:writer"))
        writer = Asking(node, "User:writer")
        reader = Asking(node, "User:reader", writer.dispatcher)
        assert [await self.produce(writer, sequence) for sequence in range(3)] == [NONE] * 3
        assert await self.produce(reader, 3) == DENIED
        assert await self.produce(writer, 3) == NONE
        assert taken == [True, True, False, True]
        assert end_offset(node, "mine") == 4

    async def test_serves_only_addresses_with_the_right(
        self, node: Node, authorizer: Authorizer, taken: list[bool]
    ) -> None:
        authorizer.add(self.entry("User:writer", "127.0.0.1"))
        near = Asking(node, "User:writer")
        far = Asking(node, "User:writer", near.dispatcher)
        far.peer.peer_host = "192.0.2.7"
        assert [await self.produce(near, 0), await self.produce(near, 1)] == [NONE, NONE]
        assert await self.produce(far, 2) == DENIED
        assert taken[-2:] == [True, False]

    async def test_a_change_of_the_rights_counts_at_once(
        self, node: Node, authorizer: Authorizer, taken: list[bool]
    ) -> None:
        authorizer.add(self.entry("User:writer"))
        writer = Asking(node, "User:writer")
        assert [await self.produce(writer, sequence) for sequence in range(2)] == [NONE] * 2
        denial = self.entry("User:writer", permission=Permission.DENY)
        authorizer.add(denial)
        assert await self.produce(writer, 2) == DENIED
        authorizer.remove(denial)
        assert await self.produce(writer, 2) == NONE
        assert taken[-3:] == [True, False, True]
        assert end_offset(node, "mine") == 3

    async def test_a_denied_request_leaves_nothing_to_repeat(
        self, node: Node, authorizer: Authorizer, taken: list[bool]
    ) -> None:
        writer = Asking(node, "User:writer")
        assert await self.produce(writer, 0) == DENIED
        assert node.services.partitions.registry.opened_count == 0
        authorizer.add(self.entry("User:writer"))
        assert await self.produce(writer, 0) == NONE
        assert not any(taken)


class TestFetch:
    @pytest.fixture(autouse=True)
    async def filled(self, node: Node) -> None:
        await self.fill(node, 0)

    @staticmethod
    async def fill(node: Node, sequence: int) -> None:
        for name in ("mine", "hidden"):
            partition = node.services.partitions.registry.get(name, 0)
            assert partition is not None
            partition.append(memoryview(bytearray(batch(sequence))), NOW_MS)
            await node.services.partitions.flusher.flushed(partition.log, partition)

    @staticmethod
    def fields(names: list[str], *, offset: int = 0, key: str = "topic", **more: Any) -> dict[str, Any]:
        partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        partition |= {"current_leader_epoch": -1, "last_fetched_epoch": -1, "log_start_offset": -1}
        topics = [{key: name, "partitions": [partition]} for name in names]
        whole = {"replica_id": -1, "session_epoch": -1, "min_bytes": 1, "max_bytes": 1 << 20}
        return {**whole, "max_wait": 0, "topics": topics, **more}

    @staticmethod
    def codes(answer: dict[str, Any], key: str = "topic") -> dict[str, int]:
        return {row[key]: row["partitions"][0]["error_code"] for row in answer["responses"]}

    @pytest.mark.parametrize("version", range(4, 13))
    async def test_only_topics_with_read_are_read(self, rights: Rights, client: Asking, version: int) -> None:
        rights.allow(Operation.READ, ResourceType.TOPIC, "mine")
        answer = await client.ask("fetch", version, **self.fields(TOPICS))
        assert self.codes(answer) == {"mine": NONE, "hidden": DENIED, "none": DENIED}
        hidden, none = (
            {**row, "topic": None} for row in answer["responses"] if row["topic"] in {"hidden", "none"}
        )
        assert hidden == none
        assert not hidden["partitions"][0]["records"]

    async def test_with_the_right_a_missing_topic_is_unknown(self, rights: Rights, client: Asking) -> None:
        rights.allow(Operation.READ, ResourceType.TOPIC, "none")
        assert self.codes(await client.ask("fetch", 12, **self.fields(["none"]))) == {"none": UNKNOWN}

    async def test_ids_of_hidden_topics_are_denied_and_unknown_ids_are_unknown(
        self, node: Node, rights: Rights, client: Asking
    ) -> None:
        rights.allow(Operation.READ, ResourceType.TOPIC, "mine")
        ids = [topic_id(node, "mine"), topic_id(node, "hidden"), str(uuid.UUID(int=5))]
        codes = self.codes(await client.ask("fetch", 13, **self.fields(ids, key="topic_id")), "topic_id")
        assert [codes[each] for each in ids] == [NONE, DENIED, UNKNOWN_ID]

    async def test_a_session_is_checked_by_every_fetch(self, rights: Rights, client: Asking) -> None:
        rights.allow(Operation.READ, ResourceType.TOPIC, "mine")
        answer = await client.ask("fetch", 12, **self.fields(["mine"], session_epoch=0))
        session = {"session_id": answer["session_id"]}
        assert session["session_id"]
        rights.deny(Operation.READ, ResourceType.TOPIC, "mine")
        answer = await client.ask("fetch", 12, **self.fields([], session_epoch=1, **session))
        assert self.codes(answer) == {"mine": DENIED}
        rights.allow(Operation.READ, ResourceType.TOPIC, "mine")
        answer = await client.ask("fetch", 12, **self.fields([], session_epoch=2, **session))
        assert self.codes(answer) == {"mine": NONE}
        assert answer["responses"][0]["partitions"][0]["records"]

    async def test_a_fetch_of_denied_topics_only_is_answered_at_once(
        self, rights: Rights, client: Asking
    ) -> None:
        deferred = client.begin("fetch", 12, **self.fields(["hidden"], max_wait=600_000))
        assert deferred.answer is not None
        assert self.codes(await answer_to("fetch", 12, deferred)) == {"hidden": DENIED}

    async def test_a_right_taken_away_counts_from_the_next_fetch_on(
        self, node: Node, rights: Rights, client: Asking
    ) -> None:
        rights.allow(Operation.READ, ResourceType.TOPIC, "mine")
        waiting = client.begin("fetch", 12, **self.fields(["mine"], offset=1, max_wait=600_000))
        await asyncio.sleep(0)
        assert waiting.answer is None
        rights.deny(Operation.READ, ResourceType.TOPIC, "mine")
        await self.fill(node, 1)
        answer = await answer_to("fetch", 12, waiting)
        assert self.codes(answer) == {"mine": NONE}
        assert answer["responses"][0]["partitions"][0]["records"]
        answer = await client.ask("fetch", 12, **self.fields(["mine"], offset=1))
        assert self.codes(answer) == {"mine": DENIED}

    async def test_a_right_given_while_a_fetch_waits_counts_from_the_next_fetch_on(
        self, node: Node, rights: Rights, client: Asking
    ) -> None:
        rights.allow(Operation.READ, ResourceType.TOPIC, "mine")
        names = ["mine", "hidden"]
        waiting = client.begin("fetch", 12, **self.fields(names, offset=1, max_wait=600_000))
        assert waiting.answer is None
        rights.allow(Operation.READ, ResourceType.TOPIC, "hidden")
        await self.fill(node, 1)
        assert self.codes(await answer_to("fetch", 12, waiting)) == {"mine": NONE, "hidden": DENIED}
        answer = await client.ask("fetch", 12, **self.fields(names, offset=1))
        assert self.codes(answer) == {"mine": NONE, "hidden": NONE}

    async def test_a_follower_needs_cluster_action_and_nothing_else(
        self, rights: Rights, client: Asking
    ) -> None:
        rights.allow(Operation.READ, ResourceType.TOPIC, "mine")
        as_follower = self.fields(TOPICS, replica_id=2)
        denied = self.codes(await client.ask("fetch", 12, **as_follower))
        assert denied == dict.fromkeys(TOPICS, DENIED)
        rights.allow(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")
        rights.deny(Operation.READ, ResourceType.TOPIC, "mine")
        codes = self.codes(await client.ask("fetch", 12, **as_follower))
        assert codes == {"mine": NOT_LEADER, "hidden": NOT_LEADER, "none": UNKNOWN}


async def test_list_offsets_needs_describe(rights: Rights, client: Asking) -> None:
    rights.allow(Operation.DESCRIBE, ResourceType.TOPIC, "mine")
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    topics = [{"name": name, "partitions": [partition]} for name in ["none", "hidden", "mine"]]
    answer = await client.ask("list_offsets", 7, replica_id=-1, topics=topics)
    rows = {row["name"]: row["partitions"] for row in answer["topics"]}
    assert list(rows) == ["mine", "none", "hidden"]
    assert [(row["error_code"], row["offset"]) for row in rows["mine"]] == [(NONE, 0)]
    assert rows["none"] == rows["hidden"]
    assert [(row["error_code"], row["offset"]) for row in rows["hidden"]] == [(DENIED, -1)]


async def test_list_offsets_denies_a_repeated_partition_as_often_as_it_is_named(
    rights: Rights, client: Asking
) -> None:
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    topics = [{"name": "hidden", "partitions": [partition, partition]}]
    answer = await client.ask("list_offsets", 7, replica_id=-1, topics=topics)
    assert [row["error_code"] for row in answer["topics"][0]["partitions"]] == [DENIED] * 2


async def test_delete_records_needs_delete(node: Node, rights: Rights, client: Asking) -> None:
    rights.allow(Operation.DELETE, ResourceType.TOPIC, "mine")
    partitions = [{"partition_index": 0, "offset": -1}]
    topics = [{"name": name, "partitions": partitions} for name in TOPICS]
    answer = await client.ask("delete_records", 2, topics=topics, timeout=30_000)
    rows = {row["name"]: row["partitions"] for row in answer["topics"]}
    assert [(row["error_code"], row["low_watermark"]) for row in rows["mine"]] == [(NONE, 0)]
    assert rows["hidden"] == rows["none"]
    assert [(row["error_code"], row["low_watermark"]) for row in rows["hidden"]] == [(DENIED, -1)]
    rights.allow(Operation.DELETE, ResourceType.TOPIC, "none")
    answer = await client.ask("delete_records", 2, topics=topics, timeout=30_000)
    codes = {row["name"]: row["partitions"][0]["error_code"] for row in answer["topics"]}
    assert codes == {"mine": NONE, "hidden": DENIED, "none": UNKNOWN}


async def test_offset_for_leader_epoch_needs_describe_or_cluster_action(
    rights: Rights, client: Asking
) -> None:
    rights.allow(Operation.DESCRIBE, ResourceType.TOPIC, "mine")
    partitions = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]
    topics = [{"topic": name, "partitions": partitions} for name in ["none", "hidden", "mine"]]

    async def codes() -> dict[str, int]:
        answer = await client.ask("offset_for_leader_epoch", 4, replica_id=-1, topics=topics)
        return {row["topic"]: row["partitions"][0]["error_code"] for row in answer["topics"]}

    denied = await codes()
    assert denied == {"mine": NONE, "none": DENIED, "hidden": DENIED}
    assert list(denied) == ["mine", "none", "hidden"]
    rights.allow(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")
    assert await codes() == {"none": UNKNOWN, "hidden": NONE, "mine": NONE}
