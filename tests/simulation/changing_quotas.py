"""A run in which client quotas change while clients write, and the gateway crashes.

Between two changes the quotas are known: the throttle time of a request that begins and ends in such a time
must follow from the quota that applies to its client. The bounds of the throttle time are coarse, because a
client does not know when the gateway charged a request: at some time between the request and its answer.
After each change the description of all quotas must show what was acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.metadata.records import CLIENT_ID, PRODUCER_BYTE_RATE, USER
from seqgate.gateway.security.principals import ANONYMOUS
from tests.simulation.changes import Changes, Trial, administrator, is_done, until_answered
from tests.simulation.clients.connection import LENGTH, Disconnected, Link, encode_frame
from tests.simulation.clients.error_codes import FAULTS
from tests.simulation.clients.surroundings import Surroundings
from tests.simulation.clients.topics import TopicPlan, create_topics
from tests.simulation.node import Node
from tests.simulation.plan import HOST, PORT
from tests.support.batches import Batch, Record

TOPIC: Final = "orders"
PRODUCE_VERSION: Final = 8
CLIENTS: Final = 3
WINDOWS: Final = 3
"""The number of windows of a second."""
LEAST_MEASURED_MS: Final = (WINDOWS - 1) * 1_000
MOST_MEASURED_MS: Final = (WINDOWS + 1) * 1_000
"""The shortest and the longest time over which a rate is measured."""
CLOCK_MS: Final = 2
"""The most by which whole milliseconds of the gateway's clock differ from the time of the loop, twice."""
RATES: Final = (500, 3_000, 20_000)
ENTITIES: Final = 2
"""The most entities with a quota at a time: with more of them a client is never without one."""
LONGEST_WAIT_MS: Final = 2_000
"""Clients open another connection instead of a longer wait."""

DEFAULT: Final = ""
Entity = tuple[str | None, str | None]
"""A user and a client id, each with a name, DEFAULT, or None when the quota does not depend on it."""
ME: Final = ANONYMOUS.partition(":")[2]


@dataclass
class Quotas:
    """The quotas that the gateway has acknowledged."""

    rates: dict[Entity, int] = field(default_factory=dict)
    changes: Changes = field(default_factory=Changes)

    def of(self, client_id: str) -> tuple[Entity, int] | None:
        """Return the user and client id whose bytes count together, and their quota; None without a quota."""
        for user in (ME, DEFAULT, None):
            for name in (client_id, DEFAULT, None):
                rate = self.rates.get((user, name))
                if rate is not None:
                    return (None if user is None else ME, None if name is None else client_id), rate
        return None


@dataclass
class Written:
    """One Produce request."""

    size: int
    sent_ms: float
    sent_life: int
    answered_ms: float | None = None
    """The time of the answer; None for a request without one, which the gateway may charge at any time."""
    last_life: int | None = None
    """The life of the gateway in which the request ended; None while it is under way."""
    counts_for: Entity | None = None
    is_known: bool = False
    """Whether no quota changed meanwhile, so that `counts_for` is certain."""
    throttle_ms: int = 0

    def may_count(self, other: Written, whom: Entity, life: int) -> bool:
        """Return whether this request may be a part of the rate when `other` was charged."""
        assert other.answered_ms is not None
        is_of_another_life = self.last_life is not None and self.last_life < life
        is_too_old = (
            self.answered_ms is not None and self.answered_ms < other.sent_ms - MOST_MEASURED_MS - 1_000
        )
        is_of_others = self.is_known and self.counts_for != whom
        return not (is_of_another_life or is_too_old or is_of_others)

    def must_count(self, other: Written, whom: Entity, life: int) -> bool:
        """Return whether this request must be a part of the rate when `other` was charged."""
        assert other.answered_ms is not None
        if self.answered_ms is None or not self.is_known or self.counts_for != whom:
            return False
        is_before = self is other or self.answered_ms <= other.sent_ms
        is_young = self.sent_ms > other.answered_ms - WINDOWS * 1_000 + CLOCK_MS
        return is_before and is_young and self.sent_life == self.last_life == life


class Run:
    """One run and its findings."""

    def __init__(self, seed: int, duration_s: float = 8.0) -> None:
        self._trial = Trial("quotas", seed, duration_s)
        self.quotas = Quotas()
        self.breaches, self.counts = self._trial.breaches, self._trial.counts
        self._written: list[Written] = []
        self._node: Node

    def execute(self) -> Run:
        """Run the gateway and its clients to the end."""
        settings = (
            f"listeners=PLAINTEXT://{HOST}:{PORT}",
            f"quota.window.num={WINDOWS}",
            "quota.window.size.seconds=1",
            f"seqgate.flush.inline.max.ms={self._trial.chance('settings').choice((0, 1))}",
        )
        self._trial.execute(settings, self._clients)
        return self

    async def _clients(self, node: Node, where: Surroundings) -> list[Coroutine[Any, Any, None]]:
        self._node = node
        await create_topics(where, [TopicPlan(TOPIC, 1)], self._trial.chance("topics"))
        return [self._change(where), *(self._use(where, f"client-{number}") for number in range(CLIENTS))]

    @property
    def _life(self) -> int:
        """The number of the gateway's process."""
        return self._node.counts["kill"] + self._node.counts["power cut"]

    # --- the client that changes quotas

    async def _change(self, where: Surroundings) -> None:
        chance, rates = self._trial.chance("changes"), self.quotas.rates
        link = administrator(where, chance)
        while not where.ending:
            if len(rates) >= ENTITIES or (rates and chance.random() < 0.25):
                entity, rate = chance.choice(list(rates)), None
            else:
                entity, rate = _entity(chance), chance.choice(RATES)
            with self.quotas.changes.one():
                await until_answered(partial(_alter, link, entity, rate))
                if rate is None:
                    del rates[entity]
                else:
                    rates[entity] = rate
            self.counts["changes"] += 1
            await where.pause(chance, 0.5)
            await until_answered(partial(self._look, link))
        link.close()

    async def _look(self, link: Link) -> bool:
        """Compare the gateway's quotas with the acknowledged ones."""
        answer = await link.call("describe_client_quotas", 1, {"components": [], "strict": False})
        if not is_done(answer.error_code):
            return False
        shown: dict[Entity, Mapping[str, float]] = {}
        for entry in answer.entries:
            names = {
                part.entity_type: DEFAULT if part.entity_name is None else part.entity_name
                for part in entry.entity
            }
            shown[names.get(USER), names.get(CLIENT_ID)] = {value.key: value.value for value in entry.values}
        expected = {entity: {PRODUCER_BYTE_RATE: rate} for entity, rate in self.quotas.rates.items()}
        if shown != expected:
            self.breaches.append(f"{shown} is described instead of {expected}")
        return True

    # --- the clients that write

    async def _use(self, where: Surroundings, client_id: str) -> None:
        chance = self._trial.chance(client_id)
        link = Link(where, client_id, chance)
        # A throttled request waits in the network, and must not be given up for that.
        link.request_timeout_s = 2 * LONGEST_WAIT_MS / 1_000
        while not where.ending:
            try:
                await link.connect()
                written = await self._write(
                    where, link, client_id, _produce(chance.choice((50, 300, 900)), where.wall_ms())
                )
                if written.throttle_ms > LONGEST_WAIT_MS:
                    link.close()
                elif written.throttle_ms and chance.random() < 0.5:
                    await self._press(where, link, client_id, written)
                else:
                    await asyncio.sleep(written.throttle_ms / 1_000)
            except Disconnected:
                self.counts["unanswered"] += 1
            await where.pause(chance, 0.02)
        link.close()

    async def _press(self, where: Surroundings, link: Link, client_id: str, before: Written) -> None:
        """Write again at once. The gateway must not read the request before the throttle time has passed."""
        after = await self._write(where, link, client_id, _produce(50, where.wall_ms()))
        self.counts["pressed"] += 1
        assert after.answered_ms is not None
        waited_ms = after.answered_ms - before.sent_ms
        if waited_ms < before.throttle_ms - CLOCK_MS:
            self.breaches.append(
                f"{client_id} was answered {waited_ms:.0f} ms after a request with a throttle time of "
                f"{before.throttle_ms} ms"
            )

    async def _write(
        self, where: Surroundings, link: Link, client_id: str, request: dict[str, Any]
    ) -> Written:
        """Write a batch over the open connection, and judge the throttle time of the answer. Raises
        Disconnected.
        """
        quotas, connection = self.quotas, link.connection
        assert connection is not None
        begun, quota = quotas.changes.known(), quotas.of(client_id)
        size = len(encode_frame("produce", PRODUCE_VERSION, request, 0, client_id)) - LENGTH.size
        written = Written(size, where.now() * 1_000, self._life)
        self._written.append(written)
        try:
            answer = await connection.send("produce", PRODUCE_VERSION, request, link.request_timeout_s)
        finally:
            written.last_life = self._life
        written.answered_ms = where.now() * 1_000
        written.throttle_ms = answer.throttle_time // timedelta(milliseconds=1)
        error = answer.responses[0].partition_responses[0].error_code
        assert error is ErrorCode.none or error in FAULTS, error
        if begun is not None and begun == quotas.changes.known():
            written.is_known, written.counts_for = True, quota and quota[0]
            self._judge(client_id, written, quota)
        return written

    def _judge(self, client_id: str, written: Written, quota: tuple[Entity, int] | None) -> None:
        least_ms = most_ms = 0.0
        if quota is not None:
            whom, rate = quota
            life = written.sent_life
            least = sum(each.size for each in self._written if each.must_count(written, whom, life))
            most = sum(each.size for each in self._written if each.may_count(written, whom, life))
            least_ms = least * 1_000 / rate - MOST_MEASURED_MS - CLOCK_MS
            most_ms = max(0.0, most * 1_000 / rate - LEAST_MEASURED_MS + CLOCK_MS)
        self.counts[_kind(least_ms, most_ms, is_limited=quota is not None)] += 1
        if not least_ms <= written.throttle_ms <= most_ms:
            self.breaches.append(
                f"{client_id} was throttled for {written.throttle_ms} ms; expected {max(0, least_ms):.0f} to "
                f"{most_ms:.0f} with {self.quotas.rates}"
            )


def _kind(least_ms: float, most_ms: float, *, is_limited: bool) -> str:
    if not is_limited:
        return "no quota"
    if least_ms > 0:
        return "over quota"
    return "either" if most_ms else "within quota"


def _entity(chance: Random) -> Entity:
    """Draw an entity of a small number, so that the same one comes and goes."""
    users, client_ids = (ME, DEFAULT, None), ("client-0", "client-1", DEFAULT, None)
    entity = chance.choice(users), chance.choice(client_ids)
    return (None, "client-0") if entity == (None, None) else entity


async def _alter(link: Link, entity: Entity, rate: int | None) -> bool:
    """Set or remove a quota; return whether the gateway has acknowledged the change."""
    parts = [
        {"entity_type": kind, "entity_name": None if name == DEFAULT else name}
        for kind, name in zip((USER, CLIENT_ID), entity, strict=True)
        if name is not None
    ]
    change = {"key": PRODUCER_BYTE_RATE, "value": float(rate or 0), "remove": rate is None}
    request = {"entries": [{"entity": parts, "ops": [change]}], "validate_only": False}
    answer = await link.call("alter_client_quotas", 1, request)
    return is_done(answer.entries[0].error_code)


def _produce(size: int, now_ms: int) -> dict[str, Any]:
    row = {"index": 0, "records": Batch([Record(b"x" * size)], base_timestamp=now_ms).encode()}
    return {
        "transactional_id": None,
        "acks": -1,
        "timeout": 1_000,
        "topic_data": [{"name": TOPIC, "partition_data": [row]}],
    }
