"""Changes topics while clients use them: more partitions, other configs, deleted records, created and deleted
topics.

The history notes records that a change may delete before the request is sent. Afterwards the administrator
checks that the change took effect.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from kio.schema.errors import ErrorCode

from tests.simulation.clients.connection import Disconnected, Target
from tests.simulation.clients.error_codes import FAULTS, MOVED
from tests.simulation.clients.fetcher import LATEST, Fetcher
from tests.simulation.clients.links import link_of
from tests.simulation.clients.surroundings import Surroundings
from tests.simulation.clients.topics import METADATA_VERSION, learn
from tests.simulation.events_of_names import DeduplicationSwitched
from tests.simulation.history import RecordsDeleting, TopicPartition
from tests.support.wire import Plain

COMPRESSION_TYPE = "compression.type"
DEDUPLICATE = "message.deduplication.enable"
TOPIC_RESOURCE, SET, TIMEOUT_MS = 2, 0, 10_000
MAX_PARTITIONS = 6
RETRY_S = 0.2
KNOWN_EVERYWHERE_S = 120.0
"""The time within which all gateways of a cluster know a change: one that stands still or is cut off hears of
it later.
"""
ANY_OFFSET = 2**62
ALL_RECORDS = 0.3
"""The share of DeleteRecords requests that delete all records."""
RETENTION_BYTES = ("4000", "-1")
CONFIGS = {
    "internal.segment.bytes": ("4000", "10000", "100000"),
    "segment.ms": ("300", "5000", "604800000"),
    "index.interval.bytes": ("0", "500", "4096"),
    "min.cleanable.dirty.ratio": ("0.01", "0.5"),
    "delete.retention.ms": ("0", "1000", "86400000"),
}
MAY_HAVE_BEEN_DONE = {ErrorCode.topic_already_exists, ErrorCode.unknown_topic_or_partition}
"""Errors of a second attempt whose first attempt may have succeeded without an answer."""


def compression_types(*, zstd: bool) -> tuple[str, ...]:
    """Return the codecs in which topics of a run may store their batches."""
    codecs = ("uncompressed", "gzip", "snappy", "lz4")
    return (*codecs, "zstd") if zstd else codecs


class Administrator:
    """Changes topics. `pause_s` is the mean time between two changes.

    `deletions` is the weight of DeleteRecords. It may shorten the retention of `retained` topics, and turn
    deduplication off and on in `switched` ones.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        name: str,
        random: Random,
        pause_s: float,
        compacted: frozenset[str],
        retained: frozenset[str],
        switched: frozenset[str],
        *,
        deletions: int,
    ) -> None:
        self._surroundings = surroundings
        self._name = name
        self._random = random
        self._pause_s = pause_s
        self._compacted = compacted
        self._retained = sorted(retained)
        self._switched = sorted(switched)
        self._deletions = deletions
        self._link = link_of(surroundings, name, random)
        self._offsets = Fetcher(surroundings, self._link, name, random, read_committed=False)
        self._scratch = 0
        self._unanswered = 0
        """The requests without an answer: a gateway may carry one out later."""

    async def run(self) -> None:
        changes = [self._add_partitions, self._configure, self._configure, self._make_and_remove]
        changes += [self._delete_records] * self._deletions + [self._shorten] * bool(self._retained)
        changes += [self._switch] * bool(self._switched)
        changes += [self._recompress] * bool(self._surroundings.history.recompressed)
        while not self._surroundings.ending:
            await self._surroundings.pause(self._random, self._pause_s)
            await self._random.choice(changes)()
        for topic in self._retained:
            await self._set(topic, "retention.bytes", "-1")
        self._link.close()

    async def _ask(self, api: str, version: int, request: Plain, to: Target = None) -> Any:
        """Send the request until an answer arrives; return the answer."""
        while True:
            try:
                return await self._link.call(api, version, request, to=to)
            except Disconnected:
                self._unanswered += 1

    async def _until_done(self, api: str, version: int, request: Plain, rows_of: str) -> bool:
        """Send the request until it succeeds.

        Returns False if it can't succeed; only a repetition or a race may cause that.
        """
        while True:
            answer = await self._ask(api, version, request)
            error = getattr(answer, rows_of)[0].error_code
            if error is ErrorCode.none:
                return True
            if error in MAY_HAVE_BEEN_DONE:
                return api != "create_partitions"
            if error is ErrorCode.invalid_partitions:
                return False
            if error not in self._surroundings.faults:
                self._surroundings.unexpected(self._name, f"{api}: {error.name}")
                return False
            await asyncio.sleep(RETRY_S)

    async def _add_partitions(self) -> None:
        topic = self._random.choice(list(self._surroundings.topics.values()))
        if topic.partitions >= MAX_PARTITIONS:
            return
        row = {"name": topic.name, "count": topic.partitions + 1, "assignments": None}
        request = {"topics": [row], "timeout": TIMEOUT_MS, "validate_only": False}
        await self._until_done("create_partitions", 3, request, "results")
        while not await learn(self._surroundings, self._link, topic.name):
            await asyncio.sleep(RETRY_S)

    async def _configure(self) -> None:
        topic = self._random.choice(list(self._surroundings.topics))
        name = self._random.choice(list(CONFIGS))
        await self._set(topic, name, self._random.choice(CONFIGS[name]))

    async def _recompress(self) -> None:
        """Let a topic store its batches in another codec, or as they are sent."""
        topic = self._random.choice(sorted(self._surroundings.history.recompressed))
        codecs = compression_types(zstd=self._surroundings.zstd)
        await self._set(topic, COMPRESSION_TYPE, self._random.choice((*codecs, "producer")))

    async def _set(self, topic: str, name: str, value: str) -> None:
        config = {"name": name, "config_operation": SET, "value": value}
        resource = {"resource_type": TOPIC_RESOURCE, "resource_name": topic, "configs": [config]}
        request = {"resources": [resource], "validate_only": False}
        await self._until_done("incremental_alter_configs", 1, request, "responses")

    async def _shorten(self) -> None:
        """Shorten the retention; from now on every record of the topic may be deleted."""
        topic = self._surroundings.topics[self._random.choice(self._retained)]
        for partition in range(MAX_PARTITIONS):
            place = TopicPartition(topic.name, partition)
            self._surroundings.history.deleted_before[place] = ANY_OFFSET
            self._surroundings.history.add(RecordsDeleting(self._surroundings.at_ms(), place, ANY_OFFSET))
        await self._set(topic.name, "retention.bytes", self._random.choice(RETENTION_BYTES))

    async def _switch(self) -> None:
        """Turn deduplication off for a while. During this time lines of producer names are stored as often as
        they arrive.
        """
        history, topic = self._surroundings.history, self._random.choice(self._switched)
        history.add(DeduplicationSwitched(self._surroundings.at_ms(), topic, on=False))
        await self._set(topic, DEDUPLICATE, "false")
        await self._surroundings.pause(self._random, 0.5)
        await self._set(topic, DEDUPLICATE, "true")
        history.add(DeduplicationSwitched(self._surroundings.at_ms(), topic, on=True))

    async def _delete_records(self) -> None:
        places = [place for place in self._surroundings.partitions() if place.topic not in self._compacted]
        if not places:
            return
        place = self._random.choice(places)
        try:
            end = await self._offsets.list_offset(place, LATEST)
        except Disconnected:
            return
        if not end:
            return
        offset = end if self._random.random() < ALL_RECORDS else self._random.randint(0, end)
        deleted = self._surroundings.history.deleted_before
        deleted[place] = max(deleted.get(place, 0), offset)
        self._surroundings.history.add(RecordsDeleting(self._surroundings.at_ms(), place, offset))
        row = {"partition_index": place.partition, "offset": offset}
        request = {"topics": [{"name": place.topic, "partitions": [row]}], "timeout": TIMEOUT_MS}
        answer = await self._ask("delete_records", 2, request, place)
        found = answer.topics[0].partitions[0]
        if found.error_code in MOVED:
            self._link.moved(place)
        if found.error_code is not ErrorCode.none and found.error_code not in self._surroundings.faults:
            self._surroundings.unexpected(self._name, f"DeleteRecords: {found.error_code.name}")
        elif found.error_code is ErrorCode.none and found.low_watermark < offset:
            sentence = f"{place} was deleted up to {offset} and begins at {found.low_watermark}"
            self._surroundings.unexpected(self._name, sentence)

    async def _make_and_remove(self) -> None:
        self._scratch += 1
        name = f"{self._name}-scratch-{self._scratch}"
        topic = {"name": name, "num_partitions": self._random.randint(1, 3), "replication_factor": 1}
        made = {"topics": [topic | {"assignments": [], "configs": []}], "timeout": TIMEOUT_MS}
        before = self._unanswered
        if await self._until_done("create_topics", 5, made, "topics"):
            await self._check(name, is_there=True)
        may_come_again = self._unanswered > before
        await self._surroundings.pause(self._random, 0.5)
        removed = {"topics": [{"name": name, "topic_id": None}], "timeout": TIMEOUT_MS}
        if await self._until_done("delete_topics", 6, removed, "responses") and not may_come_again:
            await self._check(name, is_there=False)

    async def _check(self, name: str, *, is_there: bool) -> None:
        """Check that an answered change took effect, also after a crash; in a cluster after a while, as any
        gateway answers.
        """
        request = {"topics": [{"topic_id": None, "name": name}], "allow_auto_topic_creation": False}
        expected = ErrorCode.none if is_there else ErrorCode.unknown_topic_or_partition
        in_cluster = self._surroundings.cluster is not None
        deadline_s = self._surroundings.now() + (KNOWN_EVERYWHERE_S if in_cluster else 0)
        while True:
            answer = await self._ask("metadata", METADATA_VERSION, request)
            error = answer.topics[0].error_code
            is_late = error is not expected and self._surroundings.now() < deadline_s
            if error in FAULTS or is_late:
                await asyncio.sleep(RETRY_S)
                continue
            if error is not expected:
                what = "made" if is_there else "removed"
                self._surroundings.unexpected(
                    self._name, f"{name} was {what}, and Metadata says {error.name}"
                )
            return
