from __future__ import annotations

import logging
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.security import user_scram_credentials
from seqgate.gateway.security.acls.access import CLUSTER_NAME, Operation, ResourceType
from tests.gateway.handlers.rights import Rights
from tests.gateway.handlers.support import Node, open_node

SECRET = b"salted-password-of-ann"


async def alter(node: Node, *, upsert: tuple[str, ...] = (), delete: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the error code of each user."""

    def make(module: ModuleType) -> dict[str, Any]:
        return {
            "deletions": tuple(module.ScramCredentialDeletion(name=name, mechanism=1) for name in delete),
            "upsertions": tuple(
                module.ScramCredentialUpsertion(
                    name=name, mechanism=1, iterations=4096, salt=b"salt", salted_password=SECRET
                )
                for name in upsert
            ),
        }

    results = (await node.ask(user_scram_credentials.ALTER_USER_SCRAM_CREDENTIALS_API, 0, make)).results
    return {result.user: result.error_code for result in results}


async def describe(node: Node, *names: str) -> Any:
    def make(module: ModuleType) -> dict[str, Any]:
        return {"users": tuple(module.UserName(name=name) for name in names) or None}

    return await node.ask(user_scram_credentials.DESCRIBE_USER_SCRAM_CREDENTIALS_API, 0, make)


async def test_a_user_that_was_set_is_described_until_it_is_deleted(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        assert await alter(node, upsert=("ann", "")) == {
            "ann": ErrorCode.none,
            "": ErrorCode.unacceptable_credential,
        }
        (result,) = (await describe(node)).results
        assert (result.user, result.error_code) == ("ann", ErrorCode.none)
        assert [(info.mechanism, info.iterations) for info in result.credential_infos] == [(1, 4096)]
        assert await alter(node, delete=("ann",)) == {"ann": ErrorCode.none}
        (result,) = (await describe(node, "ann")).results
        assert (result.error_code, result.credential_infos) == (ErrorCode.resource_not_found, ())
        assert (await describe(node)).results == ()


async def test_users_survive_a_restart(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        await alter(node, upsert=("ann",))
        before = node.services.topics.metadata_log.image.users.by_name
    async with open_node(tmp_path) as node:
        assert node.services.topics.metadata_log.image.users.by_name == before


async def test_users_need_rights_on_the_cluster(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        rights = Rights()
        node.services.node.access = rights
        refused = ErrorCode.cluster_authorization_failed
        assert await alter(node, upsert=("ann",), delete=("bob", "ann")) == {"ann": refused, "bob": refused}
        answer = await describe(node, "ann", "bob", "ann")
        assert answer.error_code is refused
        assert [(row.user, row.error_code, row.credential_infos) for row in answer.results] == [
            ("", refused, ())
        ] * 3
        assert (await describe(node)).results == ()
        rights.allow(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
        assert await alter(node, upsert=("ann",)) == {"ann": ErrorCode.none}
        rights.allow(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
        assert len((await describe(node)).results) == 1


async def test_no_log_line_has_a_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with open_node(tmp_path) as node:
        await alter(node, upsert=("ann",))
        await alter(node, upsert=("ann",), delete=("ann",))
    assert "set the SCRAM credential of ann" in caplog.text
    assert SECRET.decode() not in caplog.text
