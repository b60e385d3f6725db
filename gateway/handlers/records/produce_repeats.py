"""The fast path of Produce: requests that equal an earlier one except for correlation id and records.

Nearly all requests of a producer are such repeats. The prefix of a request for one partition is the part
before its records: client id, acks, topic, partition. A producer sends the same prefix each time, so the
gateway decodes it once, and remembers for it the partition and the constant parts of the answer. The batch
itself is judged by the same code as in other requests. With an authorizer, each request asks for its right
anew, because clients with other rights may send the same prefix.

After its api key, version and correlation id such a request is

    v9–v13   client_id | 0 | null | acks | timeout | 2 | name or id | 2 | index ‖ compact size | records | 0 0 0
    v5–v8    client_id | null | acks | timeout | 1 | name | 1 | index ‖ int32 size | records

where ‖ marks the end of the prefix. Source: Kafka's ProduceRequest.json and ProduceResponse.json.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Final

from seqgate.gateway.handlers.answering.api import NOT_REPEATED, Answer, Deferred, NotRepeated, Peer
from seqgate.gateway.handlers.records.produce_append import (
    ATTRIBUTES_POSITION,
    CODEC_BITS,
    ProduceContext,
    ProduceServices,
    append_batch,
    close_on_error,
    expired_row,
    note_unsettled,
    unflushed_row,
)
from seqgate.gateway.metadata.image import INTERNAL_TOPICS
from seqgate.gateway.protocol.frames import FIXED_HEADER_BYTES, ONE_BYTE, read_unsigned_varint
from seqgate.gateway.protocol.produce_codec import ProduceRequest, ProduceRow, encode_produce_response
from seqgate.gateway.runtime.loop.clock import NS_PER_MS
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.security.acls.access import Operation, ResourceType
from seqgate.log import Appended

MAX_PREFIXES: Final = 4096
"""Prefixes remembered for each version. One more empties the table."""
MAX_PREFIX_BYTES: Final = 512
"""Longer prefixes are not remembered; only unusually long client ids or topic names make them."""
_VALID_ACKS: Final = frozenset((-1, 0, 1))
FIRST_VERSION: Final = 5
"""The first version whose answers have rows with log_start_offset. Older requests are always decoded."""
PREFIX_START: Final = 8
_FIRST_FLEXIBLE: Final = 9
_FIRST_WITH_IDS: Final = 13
_PREFIX_INT32: Final = Struct(">i")
_LEGACY_START: Final = Struct(">hhii")  # null transactional_id, acks, timeout, topic count
_NO_TAGS_THRICE = b"\0\0\0"
_MARKED_ROW: Final = (0x5EA96A7E00000001, 0x5EA96A7E00000002, 0x5EA96A7E00000003)
_MARK: Final = Struct(">qqq").pack(*_MARKED_ROW)


def prefix_end(frame: memoryview, api_version: int, client_id_bytes: int) -> int:
    """Return the end of the prefix of a request for one partition.

    For any other request the result is meaningless. Raises IndexError.
    """
    body = FIXED_HEADER_BYTES
    if client_id_bytes > 0:
        body += client_id_bytes
    if api_version >= _FIRST_WITH_IDS:
        return body + 30
    if api_version >= _FIRST_FLEXIBLE:
        return body + 14 + frame[body + 9]
    return body + 22 + (frame[body + 12] << 8 | frame[body + 13])


def is_for_one_partition(frame: memoryview, api_version: int, client_id_bytes: int) -> bool:
    """Return True when a well-formed request has the layout that `prefix_end` assumes."""
    body = FIXED_HEADER_BYTES + max(client_id_bytes, 0)
    end = prefix_end(frame, api_version, client_id_bytes)
    if end >= len(frame):
        return False
    if api_version < _FIRST_FLEXIBLE:
        transactional, _, _, topic_count = _LEGACY_START.unpack_from(frame, body)
        (partition_count,) = _PREFIX_INT32.unpack_from(frame, end - 8)
        return bool(transactional == -1 and topic_count == partition_count == 1)
    plain_name = api_version >= _FIRST_WITH_IDS or frame[body + 9] < ONE_BYTE
    return plain_name and frame[body] == frame[body + 1] == 0 and frame[body + 8] == frame[end - 5] == 2


def records_of(frame: memoryview, end: int, api_version: int) -> memoryview | None:
    """Return the records after a prefix that ends at `end`; None when they are null, or when more than
    records follows.

    Raises MalformedRequest.
    """
    if api_version < _FIRST_FLEXIBLE:
        if (
            len(frame) - end < _PREFIX_INT32.size
            or _PREFIX_INT32.unpack_from(frame, end)[0] != len(frame) - end - 4
        ):
            return None
        return frame[end + 4 :]
    size, start = frame[end] if end < len(frame) else ONE_BYTE, end + 1
    if size >= ONE_BYTE:
        size, start = read_unsigned_varint(frame, end)
    stop = start + size - 1
    if size == 0 or stop + 3 != len(frame) or frame[stop:] != _NO_TAGS_THRICE:
        return None
    return frame[start:stop]


class RepeatedAnswer:
    """The answer to a request with a known prefix whose batch was appended. Only four numbers change."""

    __slots__ = ("_after", "_before", "_pack", "_size_bytes")

    def __init__(self, api_version: int, key: str | bytes, partition: int) -> None:
        """Pack the answer for a topic and partition. `key` is the topic name or id, as the request names the
        topic.

        Raises struct.error for a name that is too long for an answer.
        """
        frame = encode_produce_response(api_version, 0, [(key, [ProduceRow(partition, 0, *_MARKED_ROW)])])
        row_at = frame.index(_MARK)
        self._size_bytes = len(frame) - 4
        self._before = frame[8:row_at]
        self._after = frame[row_at + len(_MARK) :]
        self._pack = Struct(f">ii{len(self._before)}sqqq{len(self._after)}s").pack

    def encode(
        self, correlation_id: int, base_offset: int, log_append_time_ms: int, log_start_offset: int
    ) -> bytes:
        """Return the whole frame, size included."""
        return self._pack(
            self._size_bytes,
            correlation_id,
            self._before,
            base_offset,
            log_append_time_ms,
            log_start_offset,
            self._after,
        )


class _Target:
    """The partition that the requests of one prefix go to, and the constant parts of their answer."""

    __slots__ = (
        "_api_version",
        "_encode",
        "_services",
        "acks",
        "client_id",
        "key",
        "partition",
        "timeout_ms",
    )

    def __init__(
        self, context: ProduceContext, request: ProduceRequest, key: str | bytes, partition: Partition
    ) -> None:
        self.client_id = context.client_id
        self.key = key
        self.partition = partition
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        self._services = context.services
        self._api_version = context.api_version
        self._encode = RepeatedAnswer(context.api_version, key, partition.index).encode

    def confirm(self, correlation_id: int, info: Appended) -> Answer:
        """Return the answer to a batch that was appended."""
        base_offset, _, log_append_time_ms, log_start_offset, _, _, _ = info
        return self._encode(correlation_id, base_offset, log_append_time_ms, log_start_offset)

    def refuse(self, correlation_id: int, row: ProduceRow) -> Answer:
        """Return the answer to a batch that was refused."""
        return encode_produce_response(self._api_version, correlation_id, [(self.key, [row])])

    def answer(
        self, deferred: Deferred, peer: Peer, correlation_id: int, info: Appended, persisted: bool
    ) -> None:
        """Answer a batch that was appended, after its flush."""
        if persisted:
            deferred.resolve(self.confirm(correlation_id, info))
        else:
            self._refuse_appended(deferred, peer, correlation_id, info, unflushed_row(self.partition.index))

    def expire(self, deferred: Deferred, peer: Peer, correlation_id: int, info: Appended) -> None:
        """Answer a batch that was appended, and is not durable after the request's time."""
        self._refuse_appended(deferred, peer, correlation_id, info, expired_row(self.partition.index))

    def _refuse_appended(
        self, deferred: Deferred, peer: Peer, correlation_id: int, info: Appended, row: ProduceRow
    ) -> None:
        note_unsettled(self._services, peer, self.key, info, row)
        deferred.resolve(self.refuse(correlation_id, row))


class ProduceRepeats:
    """Recognizes repeats of Produce requests of one version, and appends their batches without decoding the
    requests.
    """

    def __init__(self, services: ProduceServices, api_version: int) -> None:
        self._services = services
        self._node = services.node
        self._clock = services.node.clock
        self._api_version = api_version
        self.begun = 0
        self._targets: dict[bytes, _Target] = {}
        """The targets by the prefix of their requests."""
        self._prefixes: dict[Partition, list[bytes]] = {}
        services.partitions.when_closed.append(self._forget)
        services.partitions.tables.extend((self._targets, self._prefixes))

    def begin(
        self, peer: Peer, frame: memoryview, correlation_id: int, client_id_bytes: int
    ) -> Answer | Deferred | NotRepeated | None:
        api_version = self._api_version
        try:
            end = prefix_end(frame, api_version, client_id_bytes)
        except IndexError:
            return NOT_REPEATED
        target = self._targets.get(frame[PREFIX_START:end].tobytes())
        if target is None:
            return NOT_REPEATED
        partition = target.partition
        records = records_of(frame, end, api_version)
        if partition.closed or records is None or partition.gate is not None:
            return NOT_REPEATED
        access = self._node.access
        if access.is_on and not access.allows(
            peer.principal, peer.peer_host, Operation.WRITE, ResourceType.TOPIC, partition.topic
        ):
            return NOT_REPEATED
        compression = partition.compression
        if compression is not None and (
            len(records) <= ATTRIBUTES_POSITION
            or records[ATTRIBUTES_POSITION] & CODEC_BITS != compression.codec
        ):
            return NOT_REPEATED
        self.begun += 1
        acks = target.acks
        info = append_batch(
            self._services,
            api_version,
            peer,
            target.client_id,
            target.key,
            partition,
            records,
            None,
            self._clock.now_ns() // NS_PER_MS,
        )
        if isinstance(info, ProduceRow):
            if not acks:
                close_on_error([(target.key, [info])])
            return target.refuse(correlation_id, info)
        if not acks:
            return None
        if not partition.is_persisted(info.answer_after):
            deferred = Deferred()
            decided: Callable[[bool], None] = partial(target.answer, deferred, peer, correlation_id, info)
            waits = self._services.waits
            if waits is not None:
                expired = partial(target.expire, deferred, peer, correlation_id, info)
                decided = waits.limited(target.timeout_ms, decided, expired)
            partition.when_decided(info.answer_after, decided)
            return deferred
        return target.confirm(correlation_id, info)

    def learn(self, frame: memoryview, context: ProduceContext, request: ProduceRequest) -> None:
        if (
            len(request.topics) != 1
            or len(request.topics[0].partitions) != 1
            or request.acks not in _VALID_ACKS
            or context.api_version < FIRST_VERSION
        ):
            return
        key, (entry,) = request.topics[0]
        topic = context.services.partitions.by_key.get(key)
        if topic is None or (
            self._node.access.is_on and not context.could(Operation.WRITE, ResourceType.TOPIC, topic.name)
        ):
            return
        partition = topic.get(entry.partition)
        client_id_bytes = int.from_bytes(frame[8:10], "big", signed=True)
        if partition is None or partition.topic in INTERNAL_TOPICS:
            return
        if not is_for_one_partition(frame, context.api_version, client_id_bytes):
            return
        end = prefix_end(frame, context.api_version, client_id_bytes)
        if end > MAX_PREFIX_BYTES:
            return
        if len(self._targets) >= MAX_PREFIXES:
            self._targets.clear()
            self._prefixes.clear()
        prefix = frame[PREFIX_START:end].tobytes()
        if prefix not in self._targets:
            self._prefixes.setdefault(partition, []).append(prefix)
        self._targets[prefix] = _Target(context, request, key, partition)

    def _forget(self, partition: Partition) -> None:
        """Drop a partition whose topic is deleted, so that its memory is freed."""
        for prefix in self._prefixes.pop(partition, ()):
            self._targets.pop(prefix, None)
