"""A run in which access control entries change while clients write and look, and the gateway crashes.

One client changes one entry at a time, and repeats a change until it is answered. Between two changes the
entries are known: a request that begins and ends in such a time must be decided as the naive model decides.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from kio.schema.errors import ErrorCode

from seqgate.gateway.config.authorization import STANDARD_AUTHORIZER
from seqgate.gateway.security.acls.access import AclEntry, Operation, PatternType, Permission, ResourceType
from seqgate.gateway.security.principals import ANONYMOUS
from tests.models import acls
from tests.simulation.changes import Changes, Trial, administrator, is_done, until_answered
from tests.simulation.clients.connection import Disconnected, Link
from tests.simulation.clients.surroundings import Surroundings
from tests.simulation.clients.topics import TopicPlan, create_topics
from tests.simulation.node import Node
from tests.simulation.plan import HOST, PORT
from tests.support.batches import Batch

TOPICS = ("orders", "orders-eu", "other")
CLIENTS = 3
ENTRIES = 3
"""The most entries at a time: with more of them nearly everything is denied."""
EVERY_HOST = "*"


@dataclass
class Rights:
    """The entries that the gateway has acknowledged."""

    present: set[AclEntry] = field(default_factory=set)
    changes: Changes = field(default_factory=Changes)

    def allow(self, operation: Operation, topic: str) -> bool:
        return acls.allows(
            self.present, (), True, ANONYMOUS, EVERY_HOST, operation, ResourceType.TOPIC, topic
        )


class Run:
    """One run and its findings."""

    def __init__(self, seed: int, duration_s: float = 6.0) -> None:
        self._trial = Trial("rights", seed, duration_s)
        self.rights = Rights()
        self.breaches, self.counts = self._trial.breaches, self._trial.counts

    def execute(self) -> Run:
        """Run the gateway and its clients to the end."""
        settings = (
            f"listeners=PLAINTEXT://{HOST}:{PORT}",
            f"authorizer.class.name={STANDARD_AUTHORIZER}",
            # No entry is about the cluster, so that every client may change entries.
            "allow.everyone.if.no.acl.found=true",
            f"seqgate.flush.inline.max.ms={self._trial.chance('settings').choice((0, 1))}",
        )
        self._trial.execute(settings, self._clients)
        return self

    async def _clients(self, node: Node, where: Surroundings) -> list[Coroutine[Any, Any, None]]:
        await create_topics(where, [TopicPlan(name, 1) for name in TOPICS], self._trial.chance("topics"))
        return [self._change(where), *(self._use(where, number) for number in range(CLIENTS))]

    # --- the client that changes entries

    async def _change(self, where: Surroundings) -> None:
        chance, present = self._trial.chance("changes"), self.rights.present
        link = administrator(where, chance)
        while not where.ending:
            crowded = len(present) >= ENTRIES
            entry = chance.choice(sorted(present)) if crowded else _entry(chance)
            is_new = entry not in present
            with self.rights.changes.one():
                await until_answered(partial(_carry_out, link, entry, is_new=is_new))
                (present.add if is_new else present.discard)(entry)
            self.counts["changes"] += 1
            await where.pause(chance, 0.1)
        link.close()

    # --- the clients that need rights

    async def _use(self, where: Surroundings, number: int) -> None:
        chance, rights = self._trial.chance(f"client {number}"), self.rights
        link = Link(where, f"client-{number}", chance)
        while not where.ending:
            topic = chance.choice(TOPICS)
            operation = chance.choice((Operation.WRITE, Operation.WRITE, Operation.DESCRIBE))
            begun, expected = rights.changes.known(), rights.allow(operation, topic)
            try:
                error = await (_write if operation is Operation.WRITE else _look)(link, topic)
            except Disconnected:
                self.counts["unanswered"] += 1
            else:
                if begun is not None and begun == rights.changes.known():
                    self._judge(expected, error, f"{operation.name} on {topic}")
            await where.pause(chance, 0.02)
        link.close()

    def _judge(self, expected: bool, error: ErrorCode, what: str) -> None:
        is_refused = error is ErrorCode.topic_authorization_failed
        self.counts["refused" if is_refused else "allowed"] += 1
        if is_refused is expected:
            present = ", ".join(sorted(map(str, self.rights.present))) or "no entries"
            self.breaches.append(f"{what} was answered {error.name} with {present}")


def _entry(chance: Random) -> AclEntry:
    """Draw an entry of a small number, so that the same one comes and goes."""
    pattern_type = chance.choice((PatternType.LITERAL, PatternType.PREFIXED))
    names = ("orders", "orders-eu", "*") if pattern_type is PatternType.LITERAL else ("ord", "o")
    return AclEntry(
        ResourceType.TOPIC,
        chance.choice(names),
        pattern_type,
        chance.choice((ANONYMOUS, "User:*", "User:other")),
        EVERY_HOST,
        chance.choice((Operation.WRITE, Operation.DESCRIBE, Operation.ALL)),
        chance.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
    )


async def _carry_out(link: Link, entry: AclEntry, *, is_new: bool) -> bool:
    """Create or delete an entry; return whether the gateway has acknowledged it."""
    common = {"operation": int(entry.operation), "permission_type": int(entry.permission)}
    if is_new:
        creation = {
            "resource_type": int(entry.resource_type),
            "resource_name": entry.name,
            "resource_pattern_type": int(entry.pattern_type),
            "principal": entry.principal,
            "host": entry.host,
            **common,
        }
        answer = await link.call("create_acls", 3, {"creations": [creation]})
        return is_done(answer.results[0].error_code)
    wanted = {
        "resource_type_filter": int(entry.resource_type),
        "resource_name_filter": entry.name,
        "pattern_type_filter": int(entry.pattern_type),
        "principal_filter": entry.principal,
        "host_filter": entry.host,
        **common,
    }
    answer = await link.call("delete_acls", 3, {"filters": [wanted]})
    return is_done(answer.filter_results[0].error_code)


async def _write(link: Link, topic: str) -> ErrorCode:
    """Write a batch. The request begins as the one before, so that the gateway remembers its prefix."""
    row = {"index": 0, "records": Batch().encode()}
    request: dict[str, Any] = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 1_000,
        "topic_data": [{"name": topic, "partition_data": [row]}],
    }
    answer = await link.call("produce", 8, request)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


async def _look(link: Link, topic: str) -> ErrorCode:
    request = {"topics": [{"topic_id": None, "name": topic}], "allow_auto_topic_creation": False}
    return ErrorCode((await link.call("metadata", 12, request)).topics[0].error_code)
