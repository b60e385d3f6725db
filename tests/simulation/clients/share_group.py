"""The life of a share group, as its operator sees it: its configs and its dead-letter topic before, the end
of its work, and the letters afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from kio.schema.errors import ErrorCode

from tests.simulation.clients.batch import decode
from tests.simulation.clients.connection import Coordinator, Disconnected, Link, Target
from tests.simulation.clients.error_codes import MOVED
from tests.simulation.clients.links import link_of
from tests.simulation.clients.share_member import SharedGroup, ShareMember
from tests.simulation.clients.surroundings import Surroundings
from tests.simulation.clients.topics import TopicPlan, create_topics
from tests.simulation.events_of_shares import (
    GroupDone,
    LetterRead,
    LettersAllowed,
    LettersRefused,
    ShareGroupBegun,
)
from tests.simulation.history import TopicPartition
from tests.support.wire import Plain

TOPIC_RESOURCE, GROUP_RESOURCE, SET = 2, 32, 0
ENABLED: Final = "errors.deadletterqueue.group.enable"
SHARE_STATE: Final = "__share_group_state"
LETTER_HEADERS: Final = "__dlq."
ALTER_VERSION, DESCRIBE_VERSION, LIST_VERSION, FETCH_VERSION = 1, 0, 7, 12
LATEST = -1
RETRY_S = 0.2
LOOK_S = 0.5
KNOWN_EVERYWHERE_S = 5.0
"""The time within which all gateways of a cluster know a change while there are no faults."""
LOCK_MS = 1_000
MAX_BYTES = 1_000_000


@dataclass(frozen=True)
class ShareTraits:
    """The choices for share groups and their members."""

    groups: tuple[int, ...] = (1, 1, 2)
    delays_ms: tuple[tuple[int, ...], ...] = ((100, 300), (50,), (200, 500, 1_000), (1_500,))
    limits: tuple[int, ...] = (2, 3, 5)
    members: tuple[int, int] = (1, 3)
    member_deaths: tuple[float, ...] = (0.0, 0.02)
    refusals: float = 0.0
    """The share of groups whose dead-letter topic takes no letters for a while."""
    letter_partitions: tuple[int, ...] = (1, 2)


class ShareGroup:
    """One share group of a run. `prepare` comes before its clients begin, and before any fault."""

    def __init__(self, surroundings: Surroundings, name: str, random: Random, traits: ShareTraits) -> None:
        self._surroundings = surroundings
        self._name = name
        self._random = random
        self._traits = traits
        self._letters = TopicPlan(f"dlq.{name}", random.choice(traits.letter_partitions), {ENABLED: "true"})
        # Producers write to no topic that these surroundings alone know.
        self._own = replace(surroundings, topics={})
        self._link = link_of(self._own, f"{name}-operator", random)
        self._sources = link_of(surroundings, f"{name}-operator", random)
        self._delays_ms = random.choice(traits.delays_ms)
        self._limit = random.choice(traits.limits)
        self._copies = random.random() < 0.7
        # in a cluster no client knows when the last gateway has heard of the change
        self._refuses = random.random() < traits.refusals and surroundings.cluster is None
        self._shared = SharedGroup(name, tuple(surroundings.topics), random.choice(traits.member_deaths))

    async def prepare(self) -> None:
        """Create the dead-letter topic, and set the group's configs."""
        await create_topics(self._own, [self._letters], self._random)
        configs = {
            "share.auto.offset.reset": "earliest",
            "share.delivery.count.limit": str(self._limit),
            "seqgate.share.retry.backoff.ms": ",".join(map(str, self._delays_ms)),
            "errors.deadletterqueue.topic.name": self._letters.name,
            "errors.deadletterqueue.copy.record.enable": str(self._copies).lower(),
        }
        await self._set(GROUP_RESOURCE, self._name, configs)
        self._link.close()
        letters = (TopicPartition(self._letters.name, each) for each in range(self._letters.partitions))
        self._surroundings.moved_too += [*letters, TopicPartition(SHARE_STATE, self._random.randrange(3))]
        if self._surroundings.cluster is not None:
            await asyncio.sleep(KNOWN_EVERYWHERE_S)
        self._surroundings.history.add(
            ShareGroupBegun(
                self._surroundings.at_ms(), self._name, self._delays_ms, self._limit, LOCK_MS, self._copies
            )
        )

    def clients(self) -> Iterator[tuple[str, Any]]:
        """Return the members, and the operator, who tells the members when the group is done."""
        for number in range(self._random.randint(*self._traits.members)):
            name, own = f"{self._name}-member-{number}", Random(self._random.getrandbits(64))
            yield name, ShareMember(self._surroundings, name, own, self._shared).run()
        yield f"{self._name}-operator", self._run()

    async def _run(self) -> None:
        if self._refuses:
            await self._refuse_for_a_while()
        while not (self._surroundings.others_are_done and await self._is_done()):
            await asyncio.sleep(LOOK_S)
        self._shared.is_done = True
        self._surroundings.history.add(GroupDone(self._surroundings.at_ms(), self._name))
        for partition in range(self._letters.partitions):
            await self._read_letters(TopicPartition(self._letters.name, partition))
        self._link.close()
        self._sources.close()

    async def _refuse_for_a_while(self) -> None:
        left_s = self._surroundings.end_at - self._surroundings.now()
        await asyncio.sleep(left_s * self._random.uniform(0.0, 0.5))
        self._surroundings.history.add(LettersRefused(self._surroundings.at_ms(), self._name))
        await self._set(TOPIC_RESOURCE, self._letters.name, {ENABLED: "false"})
        await asyncio.sleep(left_s * self._random.uniform(0.1, 0.5))
        await self._set(TOPIC_RESOURCE, self._letters.name, {ENABLED: "true"})
        self._surroundings.history.add(LettersAllowed(self._surroundings.at_ms(), self._name))

    async def _set(self, resource_type: int, name: str, configs: dict[str, str]) -> None:
        rows = [{"name": each, "config_operation": SET, "value": value} for each, value in configs.items()]
        resource = {"resource_type": resource_type, "resource_name": name, "configs": rows}
        request = {"resources": [resource], "validate_only": False}
        while True:
            answer = await self._ask("incremental_alter_configs", ALTER_VERSION, request)
            error = None if answer is None else answer.responses[0].error_code
            if error is ErrorCode.none:
                return
            if error is not None and error not in self._surroundings.faults:
                self._surroundings.unexpected(self._name, f"IncrementalAlterConfigs: {error.name}")
            await asyncio.sleep(RETRY_S)

    async def _ask(self, api: str, version: int, request: Plain, to: Target = None) -> Any:
        """Return the answer; None where the connection ended before."""
        try:
            return await self._link.call(api, version, request, to=to)
        except Disconnected:
            return None

    # --- the end

    async def _is_done(self) -> bool:
        """Return whether the group has no record left in any partition of its topics."""
        request = {"groups": [{"group_id": self._name, "topics": None}]}
        answer = await self._ask(
            "describe_share_group_offsets", DESCRIBE_VERSION, request, Coordinator(0, self._name)
        )
        if answer is None:
            return False
        if answer.groups[0].error_code is not ErrorCode.none:
            await self._ask("find_coordinator", 4, {"key_type": 0, "coordinator_keys": [self._name]})
            return False
        starts = {
            TopicPartition(topic.topic_name, row.partition_index): row.start_offset
            for topic in answer.groups[0].topics
            for row in topic.partitions
            if row.error_code is ErrorCode.none
        }
        for place in self._surroundings.partitions():
            if starts.get(place, -1) < await self._end_of(place, self._sources):
                return False
        return True

    async def _end_of(self, place: TopicPartition, link: Link) -> int:
        """Return the end of a partition."""
        row = {"partition_index": place.partition, "current_leader_epoch": -1, "timestamp": LATEST}
        request = {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": place.topic, "partitions": [row]}],
        }
        while True:
            try:
                answer = await link.call("list_offsets", LIST_VERSION, request, to=place)
            except Disconnected:
                answer = None
            found = None if answer is None else answer.topics[0].partitions[0]
            if found is not None and found.error_code is ErrorCode.none:
                return int(found.offset)
            if found is not None and found.error_code in MOVED:
                link.moved(place)
            await asyncio.sleep(RETRY_S)

    async def _read_letters(self, place: TopicPartition) -> None:
        position, end = 0, await self._end_of(place, self._link)
        while position < end:
            row = {
                "partition": place.partition,
                "current_leader_epoch": -1,
                "fetch_offset": position,
                "last_fetched_epoch": -1,
                "log_start_offset": -1,
                "partition_max_bytes": MAX_BYTES,
            }
            request = {
                "replica_id": -1,
                "max_bytes": MAX_BYTES,
                "session_id": 0,
                "session_epoch": -1,
                "topics": [{"topic": place.topic, "partitions": [row]}],
            }
            answer = await self._ask("fetch", FETCH_VERSION, request, place)
            found = None if answer is None else answer.responses[0].partitions[0]
            if found is None or found.error_code is not ErrorCode.none or not found.records:
                if found is not None and found.error_code in MOVED:
                    self._link.moved(place, found)
                await asyncio.sleep(RETRY_S)
                continue
            for batch in decode(bytes(found.records)):
                position = batch.last_offset + 1
                for (offset, key, value), headers in zip(batch.records, batch.headers, strict=True):
                    said = tuple((name, (text or b"").decode()) for name, text in headers)
                    own = tuple(each for each in said if each[0].startswith(LETTER_HEADERS))
                    at_ms = self._surroundings.at_ms()
                    self._surroundings.history.add(LetterRead(at_ms, self._name, offset, own, key, value))
