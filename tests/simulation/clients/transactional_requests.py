"""The requests of a transactional producer to its coordinators, each retried until its answer is final."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from kio.schema.errors import ErrorCode

from tests.simulation.clients.connection import Coordinator, Disconnected, Link
from tests.simulation.clients.surroundings import Surroundings
from tests.simulation.history import TopicPartition
from tests.support.wire import Plain

RETRY_S = 0.1
NO_COORDINATOR = {ErrorCode.not_coordinator, ErrorCode.coordinator_not_available}
NO_PRODUCER = -1, -1
FIND_VERSION = 4


@dataclass(frozen=True)
class Producer:
    producer_id: int
    producer_epoch: int

    def fields(self) -> Plain:
        return {"producer_id": self.producer_id, "producer_epoch": self.producer_epoch}


class TransactionalRequests:
    """Sends the requests.

    `adds_implicitly`: the client speaks KIP-890's second part, where Produce adds partitions and ends bump
    epochs.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        link: Link,
        random: Random,
        transactional_id: str,
        *,
        adds_implicitly: bool,
    ) -> None:
        self._surroundings = surroundings
        self._link = link
        self._id = transactional_id
        self._adds_implicitly = adds_implicitly
        self._init_version = random.randint(3, 5)
        self._add_version = random.randint(0, 3)
        self._add_offsets_version = random.randint(0, 4)
        self._end_version = 5 if adds_implicitly else random.randint(0, 4)
        self._commit_version = 5 if adds_implicitly else random.randint(0, 4)
        self._random = random
        self._busy = surroundings.faults | {ErrorCode.concurrent_transactions}

    def _coordinator(self, group: str | None = None) -> Coordinator:
        return Coordinator(1, self._id) if group is None else Coordinator(0, group)

    async def _ask(
        self,
        api: str,
        version: int,
        request: Plain,
        error_of: Callable[[Any], ErrorCode],
        group: str | None = None,
    ) -> tuple[ErrorCode, Any]:
        """Send the request until an answer arrives that does not ask for a retry."""
        while True:
            try:
                answer = await self._link.call(api, version, request, to=self._coordinator(group))
            except Disconnected:
                continue
            error = error_of(answer)
            if error not in self._busy:
                return error, answer
            if error in NO_COORDINATOR:
                await self._find_coordinator(group)
            await asyncio.sleep(RETRY_S * self._random.uniform(0.5, 1.5))

    async def _find_coordinator(self, group: str | None = None) -> None:
        """Find the coordinator of the group or transactional id. The first request creates the coordinator's
        topic.
        """
        request = {"key_type": int(group is None), "coordinator_keys": [group or self._id]}
        try:
            await self._link.call("find_coordinator", FIND_VERSION, request)
        except Disconnected:
            return

    async def init_producer_id(self, timeout_ms: int, known: Producer | None) -> tuple[ErrorCode, Producer]:
        """Get a new producer epoch for a new instance, or for `known` after an error.

        Counts every request that is sent.
        """
        producer = known or Producer(*NO_PRODUCER)
        request = {"transactional_id": self._id, "transaction_timeout": timeout_ms} | producer.fields()
        await self._find_coordinator()
        while True:
            await self._link.connect(self._coordinator())
            self._surroundings.id_requests(self._id).sent += 1
            try:
                answer = await self._link.call(
                    "init_producer_id", self._init_version, request, to=self._coordinator()
                )
            except Disconnected:
                continue
            self._surroundings.id_requests(self._id).answered += 1
            if answer.error_code in NO_COORDINATOR:
                await self._find_coordinator()
            if answer.error_code not in self._busy:
                return answer.error_code, Producer(answer.producer_id, answer.producer_epoch)
            await asyncio.sleep(RETRY_S * self._random.uniform(0.5, 1.5))

    async def add_partition(self, producer: Producer, place: TopicPartition) -> ErrorCode:
        if self._adds_implicitly:
            return ErrorCode.none
        fields = producer.fields() | {
            "transactional_id": self._id,
            "topics": [{"name": place.topic, "partitions": [place.partition]}],
        }
        request = {f"v3_and_below_{name}": value for name, value in fields.items()}
        error, _ = await self._ask(
            "add_partitions_to_txn",
            self._add_version,
            request,
            lambda answer: (
                answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            ),
        )
        return error

    async def commit_offsets(
        self,
        producer: Producer,
        group: str,
        offsets: tuple[tuple[TopicPartition, int], ...],
        member: Plain | None = None,
    ) -> ErrorCode:
        """Send AddOffsetsToTxn if the client's protocol needs it, then TxnOffsetCommit.

        `member` is the group member that commits, if any.
        """
        named = producer.fields() | {"transactional_id": self._id, "group_id": group}
        if not self._adds_implicitly:
            error, _ = await self._ask(
                "add_offsets_to_txn", self._add_offsets_version, named, lambda answer: answer.error_code
            )
            if error is not ErrorCode.none:
                return error
        topics: dict[str, list[Plain]] = {}
        for place, offset in offsets:
            row = {
                "partition_index": place.partition,
                "committed_offset": offset,
                "committed_leader_epoch": -1,
                "committed_metadata": "",
            }
            topics.setdefault(place.topic, []).append(row)
        request = named | {
            "topics": [{"name": topic, "partitions": rows} for topic, rows in topics.items()],
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
        }
        version = self._commit_version if member is None else max(self._commit_version, 3)
        error, _ = await self._ask(
            "txn_offset_commit",
            version,
            request | (member or {}),
            lambda answer: max(
                (row.error_code for topic in answer.topics for row in topic.partitions),
                key=lambda code: abs(code.value),
            ),
            group,
        )
        return error

    async def end(self, producer: Producer, *, commit: bool) -> tuple[ErrorCode, Producer]:
        """Send the same EndTxn until it is answered; return the producer id and epoch that are valid from
        then on.
        """
        request = producer.fields() | {"transactional_id": self._id, "committed": commit}
        error, answer = await self._ask(
            "end_txn", self._end_version, request, lambda answer: answer.error_code
        )
        if error is ErrorCode.none and self._adds_implicitly:
            return error, Producer(answer.producer_id, answer.producer_epoch)
        return error, producer
