"""OffsetFetch (key 9, versions 1–10): return the committed offsets of groups; from v8 on of several groups at
once. Rights: `DESCRIBE` on the group; `DESCRIBE` on the topic.

A partition without a committed offset gets −1. A request without topics (null, from v2 on) gets all committed
offsets. The answer waits until all that it tells is durable (`GroupCoordinator.read_durable`): a crash could
otherwise take an offset back that a consumer has begun from. With `require_stable` it has no offset that an
open transaction may change (KIP-447). From v10 on topics are named by id. For a group id that stands for a
producer name the answer has the name's persisted sequence ids (`NameOffsets`). A request for all offsets gets
those of topics that the client may describe. Source: Kafka's KafkaApis.handleOffsetFetchRequest,
OffsetMetadataManager.fetchOffsets.

`NameOffsets` answers for a producer name: the name's last sequence ids in the partitions of topics that
deduplicate. The offset is the name's last persisted sequence id, not the one after it; the metadata has the
same number and the epoch, as JSON. After a start a log may still be in replay. Then the request replays it
for a while. If that is not enough, the client gets COORDINATOR_LOAD_IN_PROGRESS, after which all client
libraries try again. Partitions that other gateways lead are asked for there (`ask_leaders`).

Another gateway may have created a topic a moment ago, and told the client of records in it. So a gateway that
does not know what it is asked for reads the metadata before it answers −1 (`catch_up`).

`ask_leaders` asks other gateways for the sequence ids of producer names in the partitions that they lead. The
question is OffsetFetch for the name's group, with a member id that limits the answer to the partitions that
the other gateway leads: so no question is passed on. An answer that lacks a partition would let the
application send records again that are stored, so the client gets an error instead, and asks again. Source:
none; Kafka has no producer names.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.group.offsets import (
    NAME_GROUP_PREFIX,
    is_name_group,
    producer_name,
    wrong_epoch,
)
from seqgate.gateway.coordinator.group.records import CommittedOffset
from seqgate.gateway.coordinator.group.shard import GroupShard
from seqgate.gateway.coordinator.places import TopicPartition
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.limits import places_to_answer, to_answer
from seqgate.gateway.handlers.answering.rights import NOTHING, refused_ids, refused_topics, unseen_topics
from seqgate.gateway.peer.peers import AsksPeers, PeerUnavailable
from seqgate.gateway.protocol.messages import build_request
from seqgate.gateway.runtime.coordinators.shards import Unavailable
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.runtime.partitions.registry import TopicPartitions
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.runtime.topics.brokers import NO_LEADER
from seqgate.gateway.runtime.upkeep.name_keeping import (
    complete_names,
    deduplicates,
    deduplicating_topics,
    may_know_names,
)
from seqgate.gateway.security.acls.access import Operation
from seqgate.log import LogError
from seqgate.seq_validator.names import NO_NAME_EPOCH, NameState

FIRST_WITH_ERROR: Final = 2
FIRST_BATCHED_VERSION: Final = 8
FIRST_WITH_MEMBER: Final = 9
FIRST_WITH_TOPIC_IDS: Final = 10
_NOT_HERE_NOW: Final = frozenset({ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress})
"""Errors that pass, which a client must not take for the answer that nothing is committed."""
NO_OFFSET: Final = CommittedOffset(-1, -1, "", -1)
UNSTABLE: Final = CommittedOffset(-1, -1, "", -2)
"""The placeholder for an offset that an open transaction may change."""


async def handle(context: RequestContext[Services], request: Any) -> Any:
    """Return the offsets of every group of the request."""
    names = NameOffsets(context)
    stable = getattr(request, "require_stable", False)
    if context.api_version < FIRST_BATCHED_VERSION:
        error, topics = await _Asked(context, request, names, require_stable=stable).answer()
        return context.answer(topics=topics, error_code=error)
    asked = to_answer(request.groups, lambda group: group.group_id)
    answers = {}
    async for group in in_slices(dict.fromkeys(asked)):
        error, topics = await _Asked(context, group, names, require_stable=stable).answer()
        answers[group] = context.row(
            "OffsetFetchResponseGroup", group_id=group.group_id, topics=topics, error_code=error
        )
    return context.answer(groups=tuple(answers[group] for group in asked))


class _Asked:
    """A group of a request, or a request for one group."""

    def __init__(
        self, context: RequestContext[Services], group: Any, names: NameOffsets, *, require_stable: bool
    ) -> None:
        registry = context.services.partitions.registry
        self._context = context
        self._group = group
        self._names = names
        self._require_stable = require_stable
        self._is_of_name = is_name_group(group.group_id)
        by_id = self._by_id = context.api_version >= FIRST_WITH_TOPIC_IDS
        self._by_key: Mapping[Any, TopicPartitions] = registry.by_id if by_id else registry.by_name
        """The topics by their ids or names, as the version has them."""
        self._places: list[tuple[Any, Sequence[int]]] | None = None
        """The topics that the request names, by id or name, with their partitions; None for all offsets."""
        if group.topics is not None:
            self._places = [
                (wanted.topic_id if by_id else wanted.name, wanted.partition_indexes)
                for wanted in group.topics
            ]
        self._hidden: AbstractSet[Any] = NOTHING
        """The topics, named as in the request, that the client may not describe."""
        self._plural = "s" if context.api_version >= FIRST_BATCHED_VERSION else ""
        """The end of the names of kio's structures, which are plural from the first batched version on."""

    async def answer(self) -> tuple[ErrorCode, tuple[Any, ...]]:
        """Return the error and the topics."""
        version = self._context.api_version
        behind = await self._catch_up()
        if self._places is not None:
            keys = [key for key, _ in self._places]
            if self._by_id:
                self._hidden = await refused_ids(self._context, Operation.DESCRIBE, keys, self._by_key)
            else:
                self._hidden = await refused_topics(self._context, Operation.DESCRIBE, keys)
        committed = behind or await self._committed()
        if isinstance(committed, ErrorCode):
            error = committed
        else:
            names_member = version >= FIRST_WITH_MEMBER and not self._is_of_name
            error = _check_member(self._context, self._group) if names_member else ErrorCode.none
            if error is ErrorCode.none:
                return error, await self._topics(committed)
        if version >= FIRST_BATCHED_VERSION:
            return error, ()
        # aiokafka (v3) checks only the errors of partitions: it would take the name for unknown, and begin a
        # topic anew
        in_rows = version < FIRST_WITH_ERROR or self._is_of_name or error in _NOT_HERE_NOW
        if error is ErrorCode.group_authorization_failed and not in_rows:
            return error, ()
        self._hidden = NOTHING
        return error, await self._topics({}, error if in_rows else ErrorCode.none)

    async def _catch_up(self) -> ErrorCode | None:
        """Read the metadata that the answer for a producer name needs; return the error if that fails."""
        group_id = self._group.group_id
        if not self._is_of_name or not self._context.may_group(Operation.DESCRIBE, group_id):
            return None
        if self._places is None:
            return await self._names.catch_up(None)
        return await self._names.catch_up([(self._by_key.get(key), some) for key, some in self._places])

    async def _committed(self) -> Mapping[TopicPartition, CommittedOffset] | ErrorCode:
        """Return the offsets; with `require_stable`, `UNSTABLE` where an open transaction may change one."""
        context, group_id = self._context, self._group.group_id
        if not context.may_group(Operation.DESCRIBE, group_id):
            return ErrorCode.group_authorization_failed
        if context.services.partitions.registry.may_be_led_elsewhere:
            return ErrorCode.not_coordinator
        try:
            name = producer_name(group_id)
            if name is not None:
                return await self._sequence_ids(name)
            return await context.services.coordinators.groups.read_durable(group_id, self._committed_in)
        except Unavailable as error:
            return error.error_code

    def _committed_in(self, shard: GroupShard) -> dict[TopicPartition, CommittedOffset]:
        group_id = self._group.group_id
        committed = dict(shard.offsets.of(group_id))
        if self._require_stable:
            held = shard.offsets.pending.places(group_id)
            # all offsets of a group are those of partitions with a committed one
            unstable = [place for place in held if self._places is not None or place in committed]
            committed.update(dict.fromkeys(unstable, UNSTABLE))
        return committed

    async def _sequence_ids(self, name: bytes) -> dict[TopicPartition, CommittedOffset]:
        """Return the offsets of a producer name, in the existing topics that the request names, or in all.
        Raises Unavailable.
        """
        topics: list[tuple[TopicPartitions, Sequence[int]]] | None = None
        if self._places is not None:
            found = ((self._by_key.get(key), some) for key, some in self._places if key not in self._hidden)
            topics = [(topic, some) for topic, some in found if topic is not None]
        offsets = await self._names.fetch(
            name,
            topics,
            only_led_here=getattr(self._group, "member_id", None) == LED_HERE,
            require_stable=self._require_stable,
        )
        return {
            place: UNSTABLE if self._require_stable and offset.is_pending else offset.committed
            for place, offset in offsets.items()
        }

    async def _topics(
        self, committed: Mapping[TopicPartition, CommittedOffset], error: ErrorCode = ErrorCode.none
    ) -> tuple[Any, ...]:
        """Return the topics of an answer. Every row gets `error` where the version has no other field for it.
        The topics in `_hidden` get TOPIC_AUTHORIZATION_FAILED.
        """
        topics: list[Any] = []
        if self._places is None:
            by_name = self._context.services.partitions.registry.by_name
            found: dict[str, list[Any]] = {}
            async for (name, partition), value in in_slices(list(committed.items())):
                if _of(by_name.get(name), value) is not NO_OFFSET:
                    found.setdefault(name, []).append(self._row(partition, value))
            unseen = await unseen_topics(self._context, Operation.DESCRIBE, found)
            for name, rows in found.items():
                topic = by_name.get(name)
                if name in unseen:
                    continue
                if not self._by_id:
                    topics.append(self._topic(name, rows))
                elif topic is not None:
                    topics.append(self._topic(topic.topic_id, rows))
            return tuple(topics)
        for key, indexes in places_to_answer(self._places):
            name, row_error, topic = key, error, self._by_key.get(key)
            if self._by_id:
                name = "" if topic is None else topic.name
                row_error = ErrorCode.unknown_topic_id if topic is None else ErrorCode.none
            if key in self._hidden:
                row_error = ErrorCode.topic_authorization_failed
            rows = [
                self._row(index, _of(topic, committed.get((name, index), NO_OFFSET)))
                if row_error is ErrorCode.none
                else self._row(index, NO_OFFSET, row_error)
                async for index in in_slices(indexes)
            ]
            topics.append(self._topic(key, rows))
        return tuple(topics)

    def _row(self, index: int, value: CommittedOffset, error: ErrorCode = ErrorCode.none) -> Any:
        if value is UNSTABLE:
            value, error = NO_OFFSET, ErrorCode.unstable_offset_commit
        return self._context.row(
            f"OffsetFetchResponsePartition{self._plural}",
            partition_index=index,
            committed_offset=value.offset,
            committed_leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            error_code=error,
        )

    def _topic(self, key: Any, rows: list[Any]) -> Any:
        name = f"OffsetFetchResponseTopic{self._plural}"
        return self._context.row(name, name=key, topic_id=key, partitions=tuple(rows))


def _of(topic: TopicPartitions | None, value: CommittedOffset) -> CommittedOffset:
    """Return the offset, or NO_OFFSET for that of an earlier topic of the name. None: the topic is not known
    here, and the offset counts.
    """
    return value if topic is None or value.is_of(topic.topic_id_bytes) else NO_OFFSET


def _check_member(context: RequestContext[Services], group: Any) -> ErrorCode:
    """Return the error code for the member; the shard may have been lost while the offsets were awaited."""
    try:
        shard = context.services.coordinators.groups.shard_of(group.group_id)
    except Unavailable as error:
        return error.error_code
    return check_member(shard, group.group_id, group.member_id, group.member_epoch)


def check_member(shard: GroupShard, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
    """Return whether a member may fetch offsets: an error code. A client without an id always may, and so may
    everybody in a classic group. Source: Kafka's `validateOffsetFetch`.
    """
    group = shard.assigned(group_id)
    if group is None or (member_id is None and member_epoch < 0):
        return ErrorCode.none
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.unknown_member_id
    return ErrorCode.none if member.member_epoch == member_epoch else wrong_epoch(member)


REQUEST_S: Final = 5.0
"""Time that one request may spend on opening partitions and replaying their logs, for all its names together.
"""


class NameOffset(NamedTuple):
    """The offset for a name in a partition, and whether it is unknown: an open transaction may change it."""

    committed: CommittedOffset
    is_pending: bool


class NameOffsets:
    """The name lookups of one request: its deadline, and the list of topics that all its names share."""

    def __init__(self, context: RequestContext[Services]) -> None:
        """Start the deadline now."""
        self._context = context
        self._services = context.services
        self._deadline_s = context.node.loop.time() + REQUEST_S
        self._deduplicating: list[TopicPartitions] | None = None

    async def catch_up(
        self, asked: Sequence[tuple[TopicPartitions | None, Sequence[int]]] | None
    ) -> ErrorCode | None:
        """Read what other gateways changed in the metadata, if the request names something unknown or all
        topics; return the error if that fails. Waits for a read of the bucket, which all requests share.
        """
        if self._services.partitions.registry.lease is None or self._knows(asked):
            return None
        loop = self._context.node.loop
        look = loop.create_task(self._services.topics.metadata_log.catch_up())
        try:
            await asyncio.wait([look], timeout=self._deadline_s - loop.time())
        finally:
            look.cancel()  # the look that all share goes on
        is_caught_up = look.done() and not look.cancelled() and look.exception() is None
        return None if is_caught_up else ErrorCode.coordinator_load_in_progress

    def _knows(self, asked: Sequence[tuple[TopicPartitions | None, Sequence[int]]] | None) -> bool:
        """Return whether all named partitions track names, as far as the metadata is known here."""
        config, image = self._services.node.config, self._services.topics.metadata_log.image
        return asked is not None and all(
            topic is not None and deduplicates(config, image, topic.name) and all(map(topic.has, indexes))
            for topic, indexes in asked
        )

    async def fetch(
        self,
        name: bytes,
        topics: Sequence[tuple[TopicPartitions, Iterable[int]]] | None,
        *,
        only_led_here: bool = False,
        require_stable: bool = False,
    ) -> dict[TopicPartition, NameOffset]:
        """Return the offsets of a name in the given partitions, or for None in all that the client may
        describe. With `only_led_here` other gateways are not asked, and a given partition that another one
        leads is refused. Opens partitions. Raises Unavailable.
        """
        if self._context.node.brokers.is_alone:
            return await self._led_here(name, topics, frozenset())
        elsewhere = await self._led_elsewhere(topics)
        if only_led_here and topics is not None and elsewhere:
            raise Unavailable(ErrorCode.not_coordinator)
        found = await self._led_here(
            name, topics, {place for places in elsewhere.values() for place in places}
        )
        if only_led_here:
            return found
        return found | await ask_leaders(
            self._context.node.peers,
            name,
            elsewhere,
            require_stable=require_stable,
            timeout_s=max(0.0, self._deadline_s - self._services.node.loop.time()),
        )

    async def _led_elsewhere(
        self, topics: Sequence[tuple[TopicPartitions, Iterable[int]]] | None
    ) -> dict[int, list[TopicPartition]]:
        """Return the partitions to ask others about, by leader. Raises Unavailable when one has no leader."""
        by_name = self._services.topics.metadata_log.image.topics_by_name
        brokers = self._context.node.brokers
        by_leader: dict[int, list[TopicPartition]] = {}
        async for topic, index in self._tracked(topics):
            image = by_name.get(topic.name)
            partition = None if image is None else image.partitions.get(index)
            if partition is None or brokers.leads(partition):
                continue
            leader = brokers.leader_of(partition)
            if leader == NO_LEADER:
                raise Unavailable(ErrorCode.coordinator_load_in_progress)
            by_leader.setdefault(leader, []).append((topic.name, index))
        return by_leader

    async def _led_here(
        self,
        name: bytes,
        topics: Sequence[tuple[TopicPartitions, Iterable[int]]] | None,
        away: Collection[TopicPartition],
    ) -> dict[TopicPartition, NameOffset]:
        """Return the offsets in partitions that other gateways are not asked about (`away`). Raises
        Unavailable when a partition is not here: its leader changes, or it is being taken over.
        """
        by_name = self._services.partitions.registry.by_name
        directory = self._services.partitions.log_directory
        found: dict[TopicPartition, NameOffset] = {}
        async for topic, index in self._tracked(topics):
            place = topic.name, index
            # a topic may be deleted meanwhile
            if place in found or place in away or by_name.get(topic.name) is not topic:
                continue
            if not topic.has(index):
                continue
            if topic.unknown_or_led_elsewhere(index) is not None:
                raise Unavailable(ErrorCode.coordinator_load_in_progress)
            if not may_know_names(directory, topic, index):
                continue
            if self._services.node.loop.time() >= self._deadline_s:
                raise Unavailable(ErrorCode.coordinator_load_in_progress)
            partition = await self._partition(topic, index)
            state = partition.log.record_states.name_state(name)
            if state is not None:
                found[place] = _name_offset(state)
        return found

    async def _tracked(
        self, topics: Sequence[tuple[TopicPartitions, Iterable[int]]] | None
    ) -> AsyncIterator[tuple[TopicPartitions, int]]:
        """Yield the partitions that track names, among the given ones or all, in slices."""
        services = self._services
        if topics is None:
            if self._deduplicating is None:
                known = deduplicating_topics(
                    services.node.config,
                    services.topics.metadata_log.image,
                    services.partitions.registry,
                    await self._described(services.partitions.registry.by_name),
                )
                self._deduplicating = [topic async for topic in known]
            topics = [(topic, range(topic.count)) for topic in self._deduplicating]
        image = services.topics.metadata_log.image
        for topic, indexes in topics:
            if deduplicates(services.node.config, image, topic.name):
                async for index in in_slices(indexes):
                    yield topic, index

    async def _described(self, names: Iterable[str]) -> list[str]:
        wanted = list(names)
        hidden = await unseen_topics(self._context, Operation.DESCRIBE, wanted)
        return [name for name in wanted if name not in hidden]

    async def _partition(self, topic: TopicPartitions, index: int) -> Partition:
        """Return a partition that knows all its names. Raises Unavailable."""
        partition = topic.get(index)
        if partition is None:
            raise Unavailable
        try:
            await complete_names(partition, self._services.node.clock, self._deadline_s)
        except TimeoutError:
            raise Unavailable(ErrorCode.coordinator_load_in_progress) from None
        except LogError as error:
            raise Unavailable from error
        if partition.log.offline or partition.closed:
            raise Unavailable
        return partition


def _name_offset(state: NameState) -> NameOffset:
    epoch = None if state.epoch == NO_NAME_EPOCH else state.epoch
    metadata = json.dumps({"persisted": state.persisted_sequence, "epoch": epoch})
    committed = CommittedOffset(state.persisted_sequence, -1, metadata, state.last_active_ms)
    return NameOffset(committed, state.is_pending)


LED_HERE: Final = "seqgate:led-here"
"""The member id of a request that asks only for partitions that the answering gateway leads."""
_OFFSET_FETCH: Final = 9
_VERSION: Final = 9
_NO_TIME: Final = -1


async def ask_leaders(
    peers: AsksPeers,
    name: bytes,
    by_leader: Mapping[int, Iterable[TopicPartition]],
    *,
    require_stable: bool,
    timeout_s: float,
) -> dict[TopicPartition, NameOffset]:
    """Return the name's offsets at these leaders, in the given partitions. Raises Unavailable. Because each
    partition is named, a gateway that has not heard of its leadership yet refuses the question.
    """
    asked = (
        _ask(peers, leader, _request(name, places, require_stable=require_stable), timeout_s)
        for leader, places in by_leader.items()
    )
    found: dict[TopicPartition, NameOffset] = {}
    for some in await asyncio.gather(*asked):
        found |= some
    return found


async def _ask(
    peers: AsksPeers, leader: int, request: Any, timeout_s: float
) -> dict[TopicPartition, NameOffset]:
    try:
        answer = await peers.ask(leader, request, timeout_s=timeout_s)
    except PeerUnavailable as error:
        raise Unavailable from error
    group = answer.groups[0]
    if int(group.error_code):
        raise Unavailable(ErrorCode.coordinator_load_in_progress)
    found: dict[TopicPartition, NameOffset] = {}
    for topic in group.topics:
        for row in topic.partitions:
            code = int(row.error_code)
            if code not in {0, int(ErrorCode.unstable_offset_commit)}:
                raise Unavailable(ErrorCode.coordinator_load_in_progress)
            if code or row.committed_offset >= 0:
                offset = CommittedOffset(row.committed_offset, -1, row.metadata or "", _NO_TIME)
                found[topic.name, row.partition_index] = NameOffset(offset, bool(code))
    return found


def _request(name: bytes, places: Iterable[TopicPartition], *, require_stable: bool) -> Any:
    by_topic: dict[str, list[int]] = {}
    for topic, index in places:
        by_topic.setdefault(topic, []).append(index)
    group = {
        "group_id": NAME_GROUP_PREFIX + name.decode("utf-8", "surrogatepass"),
        "member_id": LED_HERE,
        "member_epoch": -1,
        "topics": [{"name": topic, "partition_indexes": tuple(some)} for topic, some in by_topic.items()],
    }
    return build_request(_OFFSET_FETCH, _VERSION, groups=[group], require_stable=require_stable)


API = Api(key=9, versions=(1, 10), reaches=api.everything, handle=handle, is_eager=True, may_be_given_up=True)
