"""A run in which access control entries change while clients write and look, and the gateway crashes.

One client changes one entry at a time, and repeats a change until it is answered. Between two changes the entries are known:
a request that begins and ends in such a time must be decided as the naive model decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kio.schema.errors import ErrorCode

from gateway.config.authorization import STANDARD_AUTHORIZER
from gateway.security.acls.codes import Operation, PatternType, Permission, ResourceType
from gateway.security.acls.entry import AclEntry
from gateway.security.principals import ANONYMOUS
from tests.models import acls
from tests.simulation.chance import seeded
from tests.simulation.clients.connection import Disconnected, Link
from tests.simulation.clients.error_codes import FAULTS
from tests.simulation.clients.surroundings import Surroundings
from tests.simulation.clients.topics import TopicPlan, create_topics
from tests.simulation.director import Director
from tests.simulation.history import History
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.node import Node
from tests.simulation.plan import HOST, PORT, Plan
from tests.support.batches import Batch

TOPICS = ("orders", "orders-eu", "other")
PATIENCE_S = 60.0
CLIENTS = 3
ENTRIES = 3
"""The most entries at a time: with more of them nearly everything is denied."""
EVERY_HOST = "*"


@dataclass
class Rights:
    """The entries that the gateway has acknowledged; `changes` grows when a change begins, and again when it ends."""

    present: set[AclEntry] = field(default_factory=set)
    changes: int = 0

    @property
    def are_known(self) -> bool:
        """Whether no change is under way."""
        return self.changes % 2 == 0

    def allow(self, operation: Operation, topic: str) -> bool:
        return acls.allows(
            self.present, (), True, ANONYMOUS, EVERY_HOST, operation, ResourceType.TOPIC, topic
        )


@dataclass
class Run:
    """One run and its findings."""

    seed: int
    duration_s: float = 6.0
    breaches: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.rights = Rights()

    def execute(self) -> Run:
        """Run the gateway and its clients to the end."""
        chance = Random(f"rights {self.seed}")
        loop = SimulatedLoop(self._part("loop"))
        network = Network(loop, self._part("network"))
        plan = Plan(
            duration_s=self.duration_s,
            settings=(
                f"listeners=PLAINTEXT://{HOST}:{PORT}",
                "seqgate.allow.insecure.listeners=true",
                f"authorizer.class.name={STANDARD_AUTHORIZER}",
                # No entry is about the cluster, so that every client may change entries.
                "allow.everyone.if.no.acl.found=true",
                f"seqgate.flush.inline.max.ms={chance.choice((0, 1))}",
            ),
            befalls={"kill": 2.0, "power cut": 2.0, "cut": 1.0},
        )
        node = Node(loop, network, plan, History(), self._part("machine"))
        director = Director(loop, network, node, plan, self._part("director"))
        root = logging.getLogger()
        level, handlers = root.level, root.handlers
        root.handlers, root.level = [logging.NullHandler()], logging.CRITICAL
        try:
            with seeded(chance):
                loop.run_until_complete(self._live(node, director))
        finally:
            node.bury()
            root.handlers, root.level = handlers, level
        self.breaches += loop.unhandled
        self.counts.update(director.faults)
        return self

    def _part(self, name: str) -> Random:
        return Random(f"rights {name} {self.seed}")

    async def _live(self, node: Node, director: Director) -> None:
        loop = asyncio.get_running_loop()
        end_at = loop.time() + self.duration_s
        assert await node.start()
        where = Surroundings(HOST, PORT, History(), node.clock.now_ms, end_at)
        await create_topics(where, [TopicPlan(name, 1) for name in TOPICS], self._part("topics"))
        clients = [self._change(where, end_at), *(self._use(where, end_at, n) for n in range(CLIENTS))]
        working = asyncio.gather(*(asyncio.create_task(client) for client in clients))
        await director.run(end_at)
        await director.end()
        async with asyncio.timeout(PATIENCE_S):
            await working
        await node.stop()

    # --- the client that changes entries

    async def _change(self, where: Surroundings, end_at: float) -> None:
        chance, rights = self._part("changes"), self.rights
        link = Link(where, "administrator", chance)
        while where.now() < end_at:
            crowded = len(rights.present) >= ENTRIES
            entry = chance.choice(sorted(rights.present)) if crowded else _entry(chance)
            is_new = entry not in rights.present
            rights.changes += 1
            while not await _carry_out(link, entry, is_new=is_new):
                await asyncio.sleep(0.05)
            (rights.present.add if is_new else rights.present.discard)(entry)
            rights.changes += 1
            self.counts["changes"] += 1
            await where.pause(chance, 0.1)
        link.close()

    # --- the clients that need rights

    async def _use(self, where: Surroundings, end_at: float, number: int) -> None:
        chance = self._part(f"client {number}")
        link = Link(where, f"client-{number}", chance)
        while where.now() < end_at:
            topic = chance.choice(TOPICS)
            operation = chance.choice((Operation.WRITE, Operation.WRITE, Operation.DESCRIBE))
            begun, are_known = self.rights.changes, self.rights.are_known
            expected = self.rights.allow(operation, topic)
            try:
                error = await (_write if operation is Operation.WRITE else _look)(link, topic)
            except Disconnected:
                self.counts["unanswered"] += 1
            else:
                if are_known and begun == self.rights.changes:
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
    common = {
        "operation": int(entry.operation),
        "permission_type": int(entry.permission),
    }
    try:
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
            return _is_done(answer.results[0].error_code)
        wanted = {
            "resource_type_filter": int(entry.resource_type),
            "resource_name_filter": entry.name,
            "pattern_type_filter": int(entry.pattern_type),
            "principal_filter": entry.principal,
            "host_filter": entry.host,
            **common,
        }
        answer = await link.call("delete_acls", 3, {"filters": [wanted]})
        return _is_done(answer.filter_results[0].error_code)
    except Disconnected:
        return False


def _is_done(error: ErrorCode) -> bool:
    assert error is ErrorCode.none or error in FAULTS, error
    return error is ErrorCode.none


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
