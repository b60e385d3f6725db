from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.security import client_quotas
from seqgate.gateway.security.acls.access import CLUSTER_NAME, Operation, ResourceType
from tests.gateway.handlers.rights import Rights
from tests.gateway.handlers.support import Node, open_node


async def alter(node: Node, user: str, key: str, value: float | None, *, version: int = 1) -> Any:
    """Return the one result of an AlterClientQuotas request."""

    def make(module: ModuleType) -> dict[str, Any]:
        op = module.OpData(key=key, value=value or 0.0, remove=value is None)
        entity = (module.EntityData(entity_type="user", entity_name=user),)
        return {"entries": (module.EntryData(entity=entity, ops=(op,)),), "validate_only": False}

    (result,) = (await node.ask(client_quotas.ALTER_CLIENT_QUOTAS_API, version, make)).entries
    return result


async def describe(node: Node, *, version: int = 1, match_type: int = 2) -> Any:
    def make(module: ModuleType) -> dict[str, Any]:
        wanted = module.ComponentData(entity_type="user", match_type=match_type, match=None)
        return {"components": (wanted,), "strict": True}

    return await node.ask(client_quotas.DESCRIBE_CLIENT_QUOTAS_API, version, make)


@pytest.mark.parametrize("version", [0, 1])
async def test_a_quota_that_was_set_is_described(tmp_path: Path, version: int) -> None:
    async with open_node(tmp_path) as node:
        result = await alter(node, "ann", "producer_byte_rate", 1024.0, version=version)
        assert result.error_code is ErrorCode.none
        assert [(part.entity_type, part.entity_name) for part in result.entity] == [("user", "ann")]
        answer = await describe(node, version=version)
        assert answer.error_code is ErrorCode.none
        (entry,) = answer.entries
        assert [(value.key, value.value) for value in entry.values] == [("producer_byte_rate", 1024.0)]
        await alter(node, "ann", "producer_byte_rate", None, version=version)
        assert (await describe(node, version=version)).entries == ()


async def test_a_refused_quota_and_a_refused_filter_say_why(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        result = await alter(node, "ann", "producer_byte_rate", -1.0)
        assert result.error_code is ErrorCode.invalid_request
        assert (
            result.error_message
            == "Configuration producer_byte_rate must be a finite number larger than 0, not -1"
        )
        answer = await describe(node, match_type=0)
        assert (answer.error_code, answer.entries) == (ErrorCode.invalid_request, None)


async def test_quotas_survive_a_restart(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        await alter(node, "ann", "consumer_byte_rate", 5.0)
    async with open_node(tmp_path) as node:
        assert len((await describe(node)).entries) == 1


async def test_a_request_that_is_refused_as_a_whole_is_answered_row_by_row(tmp_path: Path) -> None:
    entities = ((("user", "ann"), ("client-id", "app")), (("user", "ann"),), (("user", "ann"),))

    def make(module: ModuleType) -> dict[str, Any]:
        rows = [
            tuple(module.EntityData(entity_type=kind, entity_name=name) for kind, name in entity)
            for entity in entities
        ]
        entries = tuple(module.EntryData(entity=row, ops=()) for row in rows)
        return {"entries": entries, "validate_only": False}

    async with open_node(tmp_path) as node:
        node.services.node.access = Rights()
        entries = (await node.ask(client_quotas.ALTER_CLIENT_QUOTAS_API, 1, make)).entries
        assert {entry.error_code for entry in entries} == {ErrorCode.cluster_authorization_failed}
        answered = [tuple((part.entity_type, part.entity_name) for part in entry.entity) for entry in entries]
        assert answered == list(entities)


async def test_quotas_need_the_right_on_the_cluster(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        rights = Rights()
        node.services.node.access = rights
        result = await alter(node, "ann", "consumer_byte_rate", 5.0)
        assert result.error_code is ErrorCode.cluster_authorization_failed
        assert (await describe(node)).error_code is ErrorCode.cluster_authorization_failed
        rights.allow(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
        assert (await alter(node, "ann", "consumer_byte_rate", 5.0)).error_code is ErrorCode.none
        assert (await describe(node)).error_code is ErrorCode.cluster_authorization_failed
        rights.allow(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
        assert len((await describe(node)).entries) == 1
