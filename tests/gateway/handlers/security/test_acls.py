"""CreateAcls, DescribeAcls and DeleteAcls of a node."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from seqgate.gateway.handlers.answering.api import CloseConnection
from seqgate.gateway.handlers.security import acls
from seqgate.gateway.runtime.loop import slices
from seqgate.gateway.runtime.loop.log_output import AUDIT
from seqgate.gateway.security.acls.access import CLUSTER_NAME, EverythingAllowed, Operation, ResourceType
from seqgate.log import StorageFailed
from tests.gateway.backends.shared_changes import SharedChanges
from tests.gateway.handlers.support import Node, open_node, versions

AUTHORIZER = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
VERSIONS = versions(acls.CREATE_ACLS_API)
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
TOPIC, CLUSTER = 2, 4
READ, ALLOW = 3, 3
BEYOND = 99


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path, AUTHORIZER, "super.users=User:ANONYMOUS", "seqgate.acls.max=5") as opened:
        yield opened


def row(name: str = "t", **changed: Any) -> dict[str, Any]:
    return {
        "resource_type": TOPIC,
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": "User:a",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
        **changed,
    }


def wanted(**changed: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
        **changed,
    }


async def create(node: Node, *rows: dict[str, Any], version: int = 3) -> list[str]:
    answer = await node.ask(
        acls.CREATE_ACLS_API,
        version,
        lambda module: {"creations": tuple(module.AclCreation(**each) for each in rows)},
    )
    return [result.error_code.name for result in answer.results]


async def describe(node: Node, version: int = 3, **changed: Any) -> Any:
    return await node.ask(acls.DESCRIBE_ACLS_API, version, lambda _: wanted(**changed))


async def names(node: Node, **changed: Any) -> list[str]:
    answer = await describe(node, **changed)
    assert answer.error_code.name == "none"
    return [resource.resource_name for resource in answer.resources]


async def delete(node: Node, *filters: dict[str, Any], version: int = 3) -> list[Any]:
    answer = await node.ask(
        acls.DELETE_ACLS_API,
        version,
        lambda module: {"filters": tuple(module.DeleteAclsFilter(**each) for each in filters)},
    )
    return [
        [found.resource_name for found in result.matching_acls]
        if result.error_code.name == "none"
        else result.error_code.name
        for result in answer.filter_results
    ]


def may_read(node: Node, topic: str) -> bool:
    access = node.services.node.access
    return access.allows("User:a", "127.0.0.1", Operation.READ, ResourceType.TOPIC, topic)


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_entry_counts_from_its_creation_to_its_deletion(node: Node, version: int) -> None:
    assert not may_read(node, "t")
    assert await create(node, row(), version=version) == ["none"]
    assert may_read(node, "t")
    answer = await describe(node, version)
    (resource,) = answer.resources
    assert (resource.resource_type, resource.resource_name, resource.pattern_type) == (TOPIC, "t", LITERAL)
    (entry,) = resource.acls
    assert (entry.principal, entry.host, entry.operation, entry.permission_type) == (
        "User:a",
        "*",
        READ,
        ALLOW,
    )
    assert await delete(node, wanted(resource_name_filter="t"), version=version) == [["t"]]
    assert not may_read(node, "t")
    assert await names(node) == []


async def test_entries_are_listed_by_pattern(node: Node) -> None:
    await create(
        node, row("b"), row("a", resource_pattern_type=PREFIXED), row("a"), row("a", principal="User:b")
    )
    answer = await describe(node)
    assert [
        (resource.resource_name, resource.pattern_type, len(resource.acls)) for resource in answer.resources
    ] == [("a", LITERAL, 2), ("a", PREFIXED, 1), ("b", LITERAL, 1)]
    assert await names(node, resource_name_filter="ab", pattern_type_filter=MATCH) == ["a"]


class TestCreation:
    async def test_wrong_entries_hinder_no_others(self, node: Node) -> None:
        assert await create(
            node,
            row("x"),
            row(principal="nobody"),
            row(""),
            row("other", resource_type=CLUSTER),
            row(CLUSTER_NAME, resource_type=CLUSTER, resource_pattern_type=PREFIXED),
            row(resource_type=BEYOND),
            row(resource_pattern_type=BEYOND),
            row(operation=BEYOND),
            row(permission_type=-1),
            row(host=""),
        ) == ["none", *["invalid_request"] * 3, "none", *["invalid_request"] * 5]
        assert await names(node) == ["x", CLUSTER_NAME]

    @pytest.mark.parametrize(
        "changed",
        [
            {"resource_type": ANY},
            {"resource_pattern_type": ANY},
            {"resource_pattern_type": MATCH},
            {"operation": ANY},
            {"permission_type": ANY},
        ],
    )
    async def test_a_code_of_filters_refuses_the_request(self, node: Node, changed: dict[str, int]) -> None:
        assert await create(node, row("x"), row(**changed)) == ["unknown_server_error"] * 2
        assert await names(node) == []

    @pytest.mark.parametrize(
        "field", ["resource_type", "resource_pattern_type", "operation", "permission_type"]
    )
    async def test_the_code_0_closes_the_connection(self, node: Node, field: str) -> None:
        with pytest.raises(CloseConnection, match=field):
            await create(node, row("x"), row(**{field: 0}))
        assert await names(node) == []

    async def test_there_is_a_limit(self, node: Node) -> None:
        rows = [row(f"t{number}") for number in range(7)]
        assert await create(node, *rows) == ["none"] * 5 + ["policy_violation"] * 2
        assert await create(node, *rows) == ["none"] * 5 + ["policy_violation"] * 2


class TestFilters:
    @pytest.mark.parametrize(
        "field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"]
    )
    async def test_the_code_0_closes_the_connection(self, node: Node, field: str) -> None:
        await create(node, row())
        with pytest.raises(CloseConnection, match=field):
            await describe(node, **{field: 0})
        with pytest.raises(CloseConnection, match=field):
            await delete(node, wanted(), wanted(**{field: 0}))
        assert await names(node) == ["t"]

    @pytest.mark.parametrize(
        "field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"]
    )
    async def test_an_unknown_code_finds_nothing(self, node: Node, field: str) -> None:
        await create(node, row())
        assert await names(node, **{field: BEYOND}) == []
        assert await delete(node, wanted(**{field: BEYOND}), wanted(resource_name_filter="x")) == [
            "invalid_request",
            [],
        ]

    async def test_filters_that_look_at_too_much_are_refused(
        self, node: Node, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await create(node, row("a"), row("b"))
        monkeypatch.setattr(acls, "MOST_COMPARED", 3)
        assert await delete(node, wanted(principal_filter="User:b"), wanted()) == [[], "invalid_request"]
        assert await delete(node, wanted(resource_name_filter="a"), wanted(resource_name_filter="b")) == [
            ["a"],
            ["b"],
        ]


async def test_a_deletion_that_looks_at_much_lets_requests_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with open_node(tmp_path, AUTHORIZER, "super.users=User:ANONYMOUS") as node:
        await create(node, *(row(f"t{number}") for number in range(30)))
        monkeypatch.setattr(slices, "SLICE_S", -1.0)
        counting = asyncio.create_task(count_turns())
        await asyncio.sleep(0)  # the slice of this turn has the usual length
        filters = [wanted(principal_filter=f"User:{name}") for name in "bcd"]
        answers = await delete(node, *filters, wanted())
        counting.cancel()
    assert [len(answer) for answer in answers] == [0, 0, 0, 30]
    assert turns > 4 * 30


async def test_a_deletion_finds_an_entry_that_another_gateway_has_just_created(tmp_path: Path) -> None:
    shared = SharedChanges()
    settings = (AUTHORIZER, "super.users=User:ANONYMOUS")
    async with (
        open_node(tmp_path / "1", *settings, journal=shared.journal) as here,
        open_node(tmp_path / "2", *settings, journal=shared.journal) as there,
    ):
        await create(there, row())
        assert await delete(here, wanted(resource_name_filter="t")) == [["t"]]
        assert await names(here) == []


async def test_a_deletion_is_refused_where_the_metadata_cannot_be_read(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        raise StorageFailed("the store is away")

    await create(node, row())
    monkeypatch.setattr(node.services.topics.metadata_log, "catch_up", fail)
    assert await delete(node, wanted()) == ["kafka_storage_error"]
    assert await names(node) == ["t"]


async def test_without_an_authorizer_security_is_disabled(node: Node) -> None:
    node.services.node.access = EverythingAllowed()
    assert await create(node, row(), row("x")) == ["security_disabled"] * 2
    assert (await describe(node)).error_code.name == "security_disabled"
    assert await delete(node, wanted()) == ["security_disabled"]


async def test_a_client_needs_rights_on_the_cluster(node: Node) -> None:
    await create(
        node, row(CLUSTER_NAME, resource_type=CLUSTER, principal="User:reader", operation=Operation.DESCRIBE)
    )
    node.peer.principal = "User:reader"
    assert await names(node) == [CLUSTER_NAME]
    assert await create(node, row()) == ["cluster_authorization_failed"]
    assert await delete(node, wanted(), wanted()) == ["cluster_authorization_failed"] * 2
    node.peer.principal = "User:nobody"
    assert (await describe(node)).error_code.name == "cluster_authorization_failed"


async def test_changes_are_logged(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="seqgate.changes")
    await create(node, row(), row("o", resource_pattern_type=PREFIXED, permission_type=2), row(""))
    await delete(node, wanted(), wanted())
    by = ", by User:ANONYMOUS at 127.0.0.1:50312 (client 'test')"
    both = "User:a may READ topic t from *, User:a may not READ topic o* from *"
    assert caplog.messages == [
        f"created access control entry: {both}{by}",
        f"deleted access control entry: {both}{by}",
    ]


async def test_refusals_and_changes_are_audited(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger=AUDIT)
    await create(node, row())
    node.peer.principal = "User:nobody"
    await create(node, row(), row("x"))
    lines = [json.loads(found.getMessage()) for found in caplog.records if found.name == AUDIT]
    who = {"address": "127.0.0.1", "listener": "PLAINTEXT", "client_id": "test", "request": "CreateAcls"}
    assert lines == [
        {
            "event": "changed",
            "principal": "User:ANONYMOUS",
            **who,
            "action": "created access control entry",
            "resources": ["User:a may READ topic t from *"],
        },
        {
            "event": "refused",
            "principal": "User:nobody",
            **who,
            "operation": "ALTER",
            "resource_type": "CLUSTER",
            "resource": CLUSTER_NAME,
            "count": 1,
        },
    ]


async def test_what_a_list_leaves_out_is_not_audited(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger=AUDIT)
    node.peer.principal = "User:nobody"
    context = node.context(acls.DESCRIBE_ACLS_API, 3)
    assert not context.could(Operation.DESCRIBE, ResourceType.TOPIC, "t")
    assert not caplog.records
    assert not context.may(Operation.DESCRIBE, ResourceType.TOPIC, "t")
    assert len(caplog.records) == 1


async def test_a_host_is_an_address_a_range_or_everybody(node: Node) -> None:
    hosts = ("*", "10.0.0.0/8", "2001:db8::/32", "", "10.0.0.0/33", "a/b")
    assert await create(node, *(row(host=host) for host in hosts)) == [
        *["none"] * 3,
        *["invalid_request"] * 3,
    ]
