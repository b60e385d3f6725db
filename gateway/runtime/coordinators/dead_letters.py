"""Writes the dead letters of share groups, each exactly once.

A record that dies is `archiving` in the stored state before anybody writes its letter, and no member gets it
again. A round of such records is one batch, which is judged as that of any idempotent producer
(`coordinator/share/letters.py`). The state ends the round once the batch is durable.

    kill -9 before the state is durable    the record is not dead: a member gets it again
    … before the batch is durable          the round is written at the next start
    … before the round has ended           the round is written again, and is a duplicate

The leader of a record's partition writes the letters, because it has the records. Where another gateway leads
the partition of the dead-letter topic, it is asked by Produce. While the topic can't be written to, the round
waits and is tried again without end; Kafka gives up after five attempts. A topic that is not allowed gets no
letters, as in Kafka: the records are archived, and counted as lost. A letter too large for its topic goes
without the content of its record.

The offsets of markers of transactions, which no member gets, leave no letter. A record that was deleted from
its log meanwhile leaves one without content. Source: Kafka's `ShareGroupDLQStateManager`,
`ShareGroupDLQRecordFetcher`, KIP-1191.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Final, NamedTuple, cast

from kio.schema.errors import ErrorCode

from seqgate.gateway.config import Config
from seqgate.gateway.coordinator.share.letters import headers_of, producer_of, refusal_of
from seqgate.gateway.coordinator.share.records import SharePartitionKey
from seqgate.gateway.coordinator.share.share_partition import LETTERS_PER_ROUND, Letter
from seqgate.gateway.metadata.decision import Decision
from seqgate.gateway.metadata.image import MetadataImage, TopicImage
from seqgate.gateway.metadata.topics import TopicCreation, TopicResult, create_topics
from seqgate.gateway.peer.peers import AsksPeers, PeerUnavailable
from seqgate.gateway.protocol.frames import topic_id_text
from seqgate.gateway.protocol.messages import build_request
from seqgate.gateway.runtime.coordinators.group_configs import GroupConfigs
from seqgate.gateway.runtime.coordinators.shards import ASK_TIMEOUT_S, Unavailable
from seqgate.gateway.runtime.coordinators.share_coordinator import LetterRound, ShareCoordinator
from seqgate.gateway.runtime.loop.clock import Clock
from seqgate.gateway.runtime.partitions.cold_reads import ColdReads
from seqgate.gateway.runtime.partitions.registry import Partitions
from seqgate.gateway.runtime.topics.brokers import Brokers
from seqgate.gateway.runtime.topics.metadata_log import MetadataLog
from seqgate.log import LogError, PartitionLog
from seqgate.log.format.compression import CODEC_IDS
from seqgate.log.format.record_batch import whole_batches
from seqgate.log.format.records import NewRecord, Record, build_batch, iterate_records

logger = logging.getLogger(__name__)

ENABLED: Final = "errors.deadletterqueue.group.enable"
RETRY_DELAYS_S: Final = (0.1, 0.5, 1.0, 5.0)
"""Delays between attempts to write a round; the last one is repeated."""
READ_BYTES: Final = 1 << 20
_PRODUCE: Final = 0
_PRODUCE_VERSION: Final = 11
_NAME_HEADERS: Final = tuple(f"message.deduplication.{what}.header" for what in ("name", "sequence", "epoch"))
_CODEC_NAMES: Final = {codec: name for name, codec in CODEC_IDS.items()}
_WRITTEN: Final = frozenset((ErrorCode.none, ErrorCode.out_of_order_sequence_number))
"""The epoch of a round has one batch. So a batch out of order is one of a round that was written, whose
records were read again and are fewer now.
"""
_TOO_LARGE: Final = frozenset((ErrorCode.message_too_large, ErrorCode.record_list_too_large))
_REFUSED: Final = _TOO_LARGE | {ErrorCode.invalid_record, ErrorCode.invalid_timestamp}
"""The errors that the same batch gets again, however often it is sent."""


class _NotNow(Exception):
    """The letters can't be written at present."""


class _Place(NamedTuple):
    """The partition that gets the letters."""

    topic: TopicImage
    partition: int


class _Source(NamedTuple):
    """The records of a round: the topic's name, the records by offset, and the offsets of markers."""

    topic: str
    records: dict[int, Record]
    markers: set[int]
    is_cut: bool = False
    """Whether the records are larger than a batch may be, so that not all were read."""


class DeadLetters:
    """One task for each share partition that has letters to write."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        partitions: Partitions,
        metadata_log: MetadataLog,
        group_configs: GroupConfigs,
        shares: ShareCoordinator,
        cold_reads: ColdReads,
        brokers: Brokers,
        peers: AsksPeers,
    ) -> None:
        self._config = config
        self._clock = clock
        self._partitions = partitions
        self._metadata_log = metadata_log
        self._group_configs = group_configs
        self._shares = shares
        self._cold_reads = cold_reads
        self._brokers = brokers
        self._peers = peers
        self._is_stopped = False
        self._tasks: dict[SharePartitionKey, asyncio.Task[None]] = {}
        self._most: dict[SharePartitionKey, int] = {}
        """How many letters the next round of a task may have, after some did not fit a batch."""
        self._complained: dict[str, str] = {}
        """Why the records of a group died without a letter: logged once."""
        self.written: Counter[str] = Counter()
        """The letters that were written, by group."""
        self.lost: Counter[str] = Counter()
        """The records that were archived without a letter, by group."""
        shares.when_changed.append(self.wake)

    def __len__(self) -> int:
        """Return the number of share partitions with letters that are being written."""
        return len(self._tasks)

    def wake(self, key: SharePartitionKey) -> None:
        """Write the letters of a share partition, if it has any and this gateway is to write them."""
        if self._is_stopped or key in self._tasks or not self._has_letters(key):
            return
        task = asyncio.get_running_loop().create_task(self._write_all(key))
        self._tasks[key] = task
        task.add_done_callback(partial(self._ended, key))

    def _has_letters(self, key: SharePartitionKey) -> bool:
        try:
            found = self._shares.find(key)
        except Unavailable:
            return False  # the state is loaded again, or its next owner loads it; both wake
        return found is not None and found.is_sending and self._is_mine(key)

    def _is_mine(self, key: SharePartitionKey) -> bool:
        """Return whether this gateway leads the partition, or holds the state of one that is deleted."""
        leads = self._brokers.leader_in(key.topic_id.bytes, key.partition)
        return (
            not self._shares.persister.is_elsewhere(key)
            if leads is None
            else leads[0] == self._brokers.node_id
        )

    def _ended(self, key: SharePartitionKey, task: asyncio.Task[None]) -> None:
        del self._tasks[key]
        self._most.pop(key, None)
        if not task.cancelled():
            self.wake(key)

    def stop(self) -> None:
        """End all writing; what is not written is written after the next start."""
        self._is_stopped = True
        for task in self._tasks.values():
            task.cancel()

    # --- rounds

    async def _write_all(self, key: SharePartitionKey) -> None:
        """Write round after round until there is none."""
        attempt = 0
        while True:
            try:
                if not (self._is_mine(key) and await self._write_round(key)):
                    return
                attempt = 0
                continue
            except (Unavailable, LogError, PeerUnavailable, _NotNow) as error:
                if not attempt:
                    logger.warning(
                        "the dead letters of share group %s in partition %d of topic %s wait: %s",
                        key.group_id,
                        key.partition,
                        key.topic_id,
                        error,
                    )
            except Exception:  # a mistake must not stop the letters for ever
                logger.exception("the dead letters of %s can't be written", key)
            await asyncio.sleep(RETRY_DELAYS_S[min(attempt, len(RETRY_DELAYS_S) - 1)])
            attempt += 1

    async def _write_round(self, key: SharePartitionKey) -> bool:
        """Write one round and end it; return False when there is none. Raises Unavailable, LogError,
        PeerUnavailable, _NotNow.
        """
        found = await self._shares.letter_round(key)
        if found is None:
            if key.topic_id not in self._metadata_log.image.topics_by_id:
                # the state of the deleted topic was kept for its letters
                await self._shares.stored.forget([key])
            return False
        place = await self._place(key, found)
        if place is not None and not await self._deliver(key, found, place):
            return True  # a part of the round was put off
        number, since_ms, _ = found
        most = self._most.get(key, LETTERS_PER_ROUND)
        await self._shares.change_letters(
            key, lambda state, now_ms: state.end_round(number, since_ms, now_ms, most)
        )
        return True

    async def _deliver(self, key: SharePartitionKey, found: LetterRound, place: _Place) -> bool:
        """Write the letters; return False when the round was split, because they don't fit a batch."""
        copies = self._group_configs.of(key.group_id).copies_records
        is_one = len(_offsets(found.letters)) == 1
        room_bytes = self._room(place)
        source = await self._read(key, found.letters, room_bytes if copies else 0)
        if source.is_cut and not is_one:
            return await self._split(key, found)
        for content in (source.records, {}) if copies else ({},):
            records = self._records(key, found.letters, source, content, self._names(place))
            if not records:
                return True
            error, size_bytes = await self._append(key, found, place, records)
            if error in _WRITTEN:
                self.written[key.group_id] += len(records)
                if key in self._most and 2 * size_bytes <= room_bytes:
                    self._most[key] = min(2 * self._most[key], LETTERS_PER_ROUND)
                return True
            if error not in _REFUSED:
                raise _NotNow(f"{place.topic.name}-{place.partition} refuses them: {error.name}")
            if not is_one:
                return await self._split(key, found)
        self._lose(key, found.letters, f"{place.topic.name}-{place.partition} refuses them: {error.name}")
        return True

    async def _split(self, key: SharePartitionKey, found: LetterRound) -> bool:
        """Put a part of a round off, of which nothing is written; return False. Later rounds of the task are
        as small, until their letters take less than half of the room.
        """
        number, since_ms, _ = found
        self._most[key] = max(1, len(_offsets(found.letters)) // 2)
        await self._shares.change_letters(
            key, lambda state, now_ms: state.split_round(number, since_ms, now_ms)
        )
        return False

    def _room(self, place: _Place) -> int:
        """Return the size in bytes of the largest batch that the topic of the letters takes."""
        configs = self._metadata_log.image.topic_configs(place.topic.name)
        return cast("int", self._config.topic_value("max.message.bytes", configs))

    def _names(self, place: _Place) -> set[str]:
        """Return the record headers by which the topic of the letters deduplicates. No letter has them: the
        topic would drop a letter whose record was sent before one that died earlier.
        """
        configs = self._metadata_log.image.topic_configs(place.topic.name)
        if not self._config.topic_value("message.deduplication.enable", configs):
            return set()
        return {str(self._config.topic_value(header, configs)) for header in _NAME_HEADERS}

    def _lose(self, key: SharePartitionKey, letters: Sequence[Letter], reason: str) -> None:
        self.lost[key.group_id] += len(_offsets(letters))
        if self._complained.get(key.group_id) != reason:
            self._complained[key.group_id] = reason
            logger.warning("records of share group %s die without a letter: %s", key.group_id, reason)

    # --- where the letters go

    async def _place(self, key: SharePartitionKey, found: LetterRound) -> _Place | None:
        """Return the partition that gets the letters; None when they are lost, because the group's topic
        can't have them. Raises LogError, _NotNow.
        """
        name = self._group_configs.of(key.group_id).letter_topic
        image = self._metadata_log.image
        topic = image.topics_by_name.get(name)
        if not name:
            self._lose(key, found.letters, "the group has no topic for letters any more")
            return None
        reason = refusal_of(
            name,
            prefix=self._config.str("errors.deadletterqueue.topic.name.prefix"),
            is_there=topic is not None,
            is_enabled=bool(self._config.topic_value(ENABLED, image.topic_configs(name))),
            creates=self._config.bool("errors.deadletterqueue.auto.create.topics.enable"),
        )
        if topic is not None and topic.topic_id == key.topic_id:
            reason = "their records are in this topic already"
        if reason is None and topic is None:
            reason = await self._create(name)
            topic = self._metadata_log.image.topics_by_name.get(name)
        if reason is not None:
            self._lose(key, found.letters, f"they can't go to topic {name}: {reason}")
            return None
        if topic is None:
            raise _NotNow(f"topic {name} is not there yet")
        return _Place(topic, key.partition % len(topic.partitions))

    async def _create(self, name: str) -> str | None:
        """Create a topic for letters; return why that is refused. Raises LogError."""
        configs = ((ENABLED, "true"), ("message.timestamp.type", "CreateTime"))
        fresh_id = uuid.uuid4()

        def decide(image: MetadataImage) -> Decision[list[TopicResult]]:
            wanted = TopicCreation(name=name, configs=configs)
            return create_topics(
                image, [wanted], fresh_ids=[fresh_id], config=self._config, node_id=self._brokers.node_id
            )

        (result,) = await self._metadata_log.commit(decide)
        if result.error is None or result.error.error_code is ErrorCode.topic_already_exists:
            return None
        return f"the topic can't be created: {result.error.message}"

    # --- what the letters say

    async def _read(self, key: SharePartitionKey, letters: Sequence[Letter], max_bytes: int) -> _Source:
        """Read the records of a round, until they have more than `max_bytes`; with 0 only what they are.
        Raises LogError, _NotNow.
        """
        topic = self._metadata_log.image.topics_by_id.get(key.topic_id)
        if topic is None:
            return _Source(topic_id_text(key.topic_id), {}, set())
        served = self._partitions.by_id.get(key.topic_id)
        partition = None if served is None else served.get(key.partition)
        if partition is None:
            raise _NotNow("their records can't be read now")
        source = _Source(topic.name, {}, set())
        log, left, offset, size_bytes = partition.log, deque(letters), 0, 0
        while left:
            offset = max(offset, left[0].first_offset, log.log_start_offset)
            data = await self._cold_reads.run(partial(_read, log, offset))
            position = offset
            for position_in_data, header in whole_batches(data):
                position = max(position, header.last_offset + 1)
                dead = _offsets_in(left, header.base_offset, header.last_offset)
                if header.is_control:
                    source.markers.update(dead)
                elif dead and max_bytes:
                    decoded = _decoded(
                        log, data[position_in_data : position_in_data + header.size_bytes], dead
                    )
                    source.records.update(decoded)
                    size_bytes += sum(map(_size_of, decoded.values()))
                    if size_bytes > max_bytes:
                        return source._replace(is_cut=True)
            if position == offset:
                break  # the log has no further records
            offset = position
            while left and left[0].last_offset < offset:
                left.popleft()
            await asyncio.sleep(0)  # many batches may have to be read; let other requests run
        return source

    def _records(
        self,
        key: SharePartitionKey,
        letters: Sequence[Letter],
        source: _Source,
        content: dict[int, Record],
        left_out: set[str],
    ) -> list[NewRecord]:
        """Return the letters of a round, with the content of those records that are in `content`, but for
        the headers `left_out`.
        """
        now_ms = self._clock.now_ms()
        records = []
        for letter in letters:
            for offset in range(letter.first_offset, letter.last_offset + 1):
                if offset in source.markers:
                    continue
                said = headers_of(key, source.topic, letter, offset)
                died = content.get(offset)
                if died is None:
                    records.append(NewRecord(None, timestamp=now_ms, headers=said))
                    continue
                own = (header for header in died.headers if header[0] not in left_out)
                records.append(NewRecord(died.value, died.key, now_ms, (*own, *said)))
        return records

    # --- writing

    async def _append(
        self, key: SharePartitionKey, found: LetterRound, place: _Place, records: list[NewRecord]
    ) -> tuple[ErrorCode, int]:
        """Append a round as one batch, here or at the gateway that leads the partition; return the error, or
        none once it is durable, and the bytes of the batch. Raises PeerUnavailable, _NotNow.
        """
        producer = producer_of(key, found.since_ms, found.number)
        build_one = partial(
            build_batch,
            records,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
        )
        leader = self._brokers.leader_of(place.topic.partitions[place.partition])
        if leader != self._brokers.node_id:
            batch = build_one()
            return await self._produce(leader, place, batch), len(batch)
        served = self._partitions.by_id.get(place.topic.topic_id)
        partition = None if served is None else served.get(place.partition)
        if partition is None:
            raise _NotNow(f"{place.topic.name}-{place.partition} can't be opened")
        codec = "none" if partition.compression is None else _CODEC_NAMES[partition.compression.codec]
        batch = build_one(codec=codec)
        try:
            info = partition.append(batch, self._clock.now_ms(), may_derive=True)
        except LogError as error:
            return ErrorCode(error.kafka_error_code), len(batch)
        if not await partition.persisted(info.answer_after):
            raise _NotNow(f"{place.topic.name}-{place.partition} could not be flushed")
        return ErrorCode.none, len(batch)

    async def _produce(self, leader: int, place: _Place, batch: bytes) -> ErrorCode:
        part = {"index": place.partition, "records": batch}
        request = build_request(
            _PRODUCE,
            _PRODUCE_VERSION,
            transactional_id=None,
            acks=-1,
            timeout=timedelta(seconds=ASK_TIMEOUT_S),
            topic_data=[{"name": place.topic.name, "partition_data": [part]}],
        )
        answer = await self._peers.ask(leader, request, timeout_s=2 * ASK_TIMEOUT_S)
        return ErrorCode(int(answer.responses[0].partition_responses[0].error_code))


def _offsets(letters: Sequence[Letter]) -> list[int]:
    return [offset for letter in letters for offset in range(letter.first_offset, letter.last_offset + 1)]


def _read(log: PartitionLog, offset: int) -> bytes:
    """Return the batches from that of `offset` on; nothing at the end of the log. Raises LogError."""
    region = log.find(offset, READ_BYTES, upper_bound=log.high_watermark)
    return b"" if region is None else log.read_region(region)


def _offsets_in(letters: Iterable[Letter], first_offset: int, last_offset: int) -> set[int]:
    """Return the offsets of ascending letters between two offsets (inclusive)."""
    found: set[int] = set()
    for letter in letters:
        if letter.first_offset > last_offset:
            break
        found.update(range(max(letter.first_offset, first_offset), min(letter.last_offset, last_offset) + 1))
    return found


def _size_of(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def _decoded(log: PartitionLog, batch: bytes, dead: set[int]) -> dict[int, Record]:
    """Return the records of a batch that died, by offset; none of a batch that can't be decoded."""
    try:
        return {
            record.offset: record
            for record in iterate_records(batch, limit_bytes=log.config.max_decompressed_bytes)
            if record.offset in dead
        }
    except LogError as error:
        logger.warning("the letters of records in %s go without their content: %s", log.place, error)
        return {}
