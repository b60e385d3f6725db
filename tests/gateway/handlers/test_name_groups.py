"""A group id that stands for a producer name is not a group: no client can join it, commit to it, or change
it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from seqgate.gateway.admin.groups.deletion import DeleteGroupsRequest
from seqgate.gateway.admin.groups.describing import DescribeGroupRequest
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.coordinator.group.offsets import is_name_group, producer_name
from seqgate.gateway.handlers import APIS
from seqgate.gateway.protocol.messages import request_schema, written
from tests.gateway.admin.answers import answer
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import Node, open_node, versions
from tests.support.wire import API_KEYS, Plain, build, entity, plain

GROUP = "seqgate-name:ledger"
TOPIC = "flights"
INVALID = ErrorCode.invalid_group_id.value
API_OF = {api.key: api for api in APIS}
MINUTE_MS = 60_000
SETTINGS = (
    "offsets.topic.num.partitions=1",
    "transaction.state.log.num.partitions=1",
    "share.coordinator.state.topic.num.partitions=1",
)
COMMITTED = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1}
"""A commit of one partition."""
SHARED = {"group_id": GROUP, "member_id": "m", "share_session_epoch": 0, "max_records": 1, "max_bytes": 1}


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path, *SETTINGS) as opened:
        await create(opened, TOPIC)
        yield opened


async def ask(node: Node, name: str, version: int, fields: Plain) -> Plain:
    api = API_OF[API_KEYS[name]]
    body = memoryview(written(build(entity(name, version, EntityType.request), fields)))
    read = request_schema(api.key, version).read if api.reader is None else api.reader(version)
    assert api.handle is not None
    answer: Plain = plain(await api.handle(node.context(api, version), read(body, 0)[0]))
    return answer


def errors_in(answer: Any) -> list[int]:
    """Return every error code of an answer, without those that mean no error."""
    if isinstance(answer, list):
        return [code for item in answer for code in errors_in(item)]
    if not isinstance(answer, dict):
        return []
    own = [answer["error_code"]] if answer.get("error_code") else []
    return own + [code for value in answer.values() for code in errors_in(value)]


REQUESTS: dict[str, Plain] = {
    "join_group": {
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    },
    "sync_group": {"member_id": "m", "protocol_type": "consumer", "protocol_name": "range"},
    "heartbeat": {"member_id": "m"},
    "leave_group": {"member_id": "m"},
    "offset_delete": {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]},
    "consumer_group_heartbeat": {
        "member_id": "m",
        "rebalance_timeout": MINUTE_MS,
        "subscribed_topic_names": [TOPIC],
        "topic_partitions": [],
    },
    "share_group_heartbeat": {"member_id": "m", "subscribed_topic_names": [TOPIC]},
    "streams_group_heartbeat": {
        "member_id": "m",
        "rebalance_timeout": 1_000,
        "topology": {"epoch": 0, "subtopologies": []},
        **dict.fromkeys(("active_tasks", "standby_tasks", "warmup_tasks"), ()),
    },
    "share_fetch": SHARED,
    "share_acknowledge": {**SHARED, "share_session_epoch": 1},
    "alter_share_group_offsets": {
        "topics": [{"topic_name": TOPIC, "partitions": [{"partition_index": 0, "start_offset": 0}]}]
    },
    "delete_share_group_offsets": {"topics": [{"topic_name": TOPIC}]},
    "add_offsets_to_txn": {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0},
}
"""Every request that a client can send for such a group."""


@pytest.mark.parametrize("name", REQUESTS)
async def test_every_request_for_the_group_of_a_name_is_refused(node: Node, name: str) -> None:
    for version in versions(API_OF[API_KEYS[name]]):
        answer = await ask(node, name, version, {"group_id": GROUP, **REQUESTS[name]})
        assert set(errors_in(answer)) == {INVALID}, version


async def test_no_offset_is_committed_to_the_group_of_a_name(node: Node) -> None:
    topic_id = str(node.services.partitions.registry.by_name[TOPIC].topic_id)
    for version in versions(API_OF[API_KEYS["offset_commit"]]):
        named = {"topic_id": topic_id} if version >= 10 else {"name": TOPIC}
        fields = {"group_id": GROUP, "generation_id_or_member_epoch": -1}
        answer = await ask(
            node, "offset_commit", version, {**fields, "topics": [{**named, "partitions": [COMMITTED]}]}
        )
        assert errors_in(answer) == [INVALID], version
    for version in versions(API_OF[API_KEYS["txn_offset_commit"]]):
        named = {"topic_id": topic_id} if version >= 6 else {"name": TOPIC}
        fields = {"group_id": GROUP, "transactional_id": "t", "generation_id": -1}
        answer = await ask(
            node, "txn_offset_commit", version, {**fields, "topics": [{**named, "partitions": [COMMITTED]}]}
        )
        assert errors_in(answer) == [INVALID], version


async def test_it_is_neither_deleted_nor_described_nor_listed(node: Node) -> None:
    deleted = await ask(node, "delete_groups", 2, {"groups_names": [GROUP]})
    described = await ask(node, "describe_groups", 6, {"groups": [GROUP]})
    listed = await ask(node, "list_groups", 5, {})
    assert errors_in(deleted) == errors_in(described) == [INVALID]
    assert listed["groups"] == []


@pytest.mark.parametrize("version", range(7))
async def test_the_coordinator_of_a_names_group_is_found(node: Node, version: int) -> None:
    fields: Plain = (
        {"key": GROUP, "key_type": 0} if version < 4 else {"coordinator_keys": [GROUP], "key_type": 0}
    )
    assert errors_in(await ask(node, "find_coordinator", version, fields)) == []


async def test_errors_of_group_commands_name_the_names_command(node: Node) -> None:
    await node.services.coordinators.groups.ensure_topic()
    with pytest.raises(ControlError, match="seqgate names"):
        await answer(node, DescribeGroupRequest(GROUP))
    with pytest.raises(ControlError, match="seqgate names"):
        await answer(node, DeleteGroupsRequest([GROUP], execute=True))


def test_the_producer_name_is_the_group_id_without_its_prefix() -> None:
    assert producer_name("seqgate-name:a:b") == b"a:b"
    assert producer_name("seqgate-name:Köln") == "Köln".encode()
    assert producer_name("seqgate-name:") == b""
    assert producer_name("seqgate-names:a") is None
    assert not is_name_group("readers")
