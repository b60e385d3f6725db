from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

from seqgate.gateway.handlers.security.acls import create_acls, delete_acls
from seqgate.gateway.metadata.decision import Decision
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.security.acls.access import AclEntry, Operation, PatternType, Permission, ResourceType
from tests.gateway.handlers.support import Node, open_node

AUTHORIZER = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ENTRY = AclEntry(
    ResourceType.TOPIC, "t", PatternType.LITERAL, "User:a", "*", Operation.READ, Permission.ALLOW
)


def may_read(node: Node, principal: str = "User:a") -> bool:
    return node.services.node.access.allows(principal, "127.0.0.1", Operation.READ, ResourceType.TOPIC, "t")


async def create(node: Node, entry: AclEntry) -> None:
    def decide(image: MetadataImage) -> Decision[list[object]]:
        decision = create_acls(image.acls, [entry], uuid.uuid4, most=10)
        return Decision(decision.records, list(decision.answer))

    await node.services.topics.metadata_log.commit(decide)


def test_a_change_counts_before_it_is_answered(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_node(tmp_path, AUTHORIZER) as node:
            assert not may_read(node)
            await create(node, ENTRY)
            assert may_read(node)
            await node.services.topics.metadata_log.commit(
                lambda image: delete_acls(image.acls, [image.acls.by_id])
            )
            assert not may_read(node)

    asyncio.run(story())


def test_entries_count_after_a_restart(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_node(tmp_path, AUTHORIZER) as node:
            await create(node, ENTRY)
        async with open_node(tmp_path, AUTHORIZER) as node:
            assert may_read(node)
            await node.services.topics.metadata_log.commit(
                lambda image: delete_acls(image.acls, [image.acls.by_id])
            )
            assert not may_read(node)

    asyncio.run(story())


def test_super_users_may_do_everything(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_node(tmp_path, AUTHORIZER, "super.users=User:root; User:CN=ops,O=Example;") as node:
            assert may_read(node, "User:root")
            assert may_read(node, "User:CN=ops,O=Example")
            assert not may_read(node)

    asyncio.run(story())


def test_everyone_may_where_nothing_is_said(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_node(tmp_path, AUTHORIZER, "allow.everyone.if.no.acl.found=true") as node:
            assert may_read(node, "User:b")
            await create(node, ENTRY)
            assert not may_read(node, "User:b")

    asyncio.run(story())


def test_without_an_authorizer_everything_is_allowed(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_node(tmp_path) as node:
            assert not node.services.node.access.is_on
            assert may_read(node, "User:b")

    asyncio.run(story())
