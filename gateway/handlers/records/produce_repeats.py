"""The fast path for repeats: Produce requests that equal an earlier one except for correlation id and
records.

For each prefix of such requests, the gateway remembers their partition and the constant parts of their
answer. The batch itself is judged by the same code as in other requests. With an authorizer, each request
asks for its right anew, because clients with other rights may send the same prefix.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from seqgate.gateway.handlers.answering.api import (
    NOT_REPEATED,
    Answer,
    Deferred,
    NotRepeated,
    Peer,
    RequestContext,
)
from seqgate.gateway.handlers.records.produce_answer import ProduceServices, expired_row, unflushed_row
from seqgate.gateway.handlers.records.produce_append import (
    ATTRIBUTES_POSITION,
    CODEC_BITS,
    append_batch,
    close_on_error,
    final_refusal,
)
from seqgate.gateway.handlers.records.produce_order import Refusals
from seqgate.gateway.metadata.image import INTERNAL_TOPICS
from seqgate.gateway.protocol.produce_codec import (
    FIRST_VERSION,
    PREFIX_START,
    ProduceRequest,
    ProduceRow,
    RepeatedAnswer,
    encode_produce_response,
    is_for_one_partition,
    prefix_end,
    records_of,
)
from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.gateway.security.acls.access import Operation, ResourceType
from seqgate.log import Appended

MAX_PREFIXES: Final = 4096
"""Prefixes remembered for each version. One more empties the table."""
MAX_PREFIX_BYTES: Final = 512
"""Longer prefixes are not remembered; only unusually long client ids or topic names make them."""
_VALID_ACKS: Final = frozenset((-1, 0, 1))


class _Target:
    """The partition that the requests of one prefix go to, and the constant parts of their answer."""

    __slots__ = (
        "_api_version",
        "_encode",
        "_refusals",
        "acks",
        "client_id",
        "key",
        "partition",
        "timeout_ms",
    )

    def __init__(
        self,
        context: RequestContext[ProduceServices],
        request: ProduceRequest,
        key: str | bytes,
        partition: Partition,
    ) -> None:
        self.client_id = context.client_id
        self.key = key
        self.partition = partition
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        self._refusals = context.services.refusals
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
        """Refuse an appended batch. The log may lose it when it is reopened, so later batches must not be
        stored before it.
        """
        if info.batch is not None:
            refusals = Refusals(self._refusals, peer)
            refusals.note_batch(self.key, self.partition.index, info.batch, row.error_code)
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
        services.partitions.tables += [self._targets, self._prefixes]

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
        if peer.refused is not None or partition.strict_until_ms:
            return NOT_REPEATED  # the order behind a refused batch is kept where requests are decoded
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
        info = append_batch(self._services, api_version, partition, records, None, self._clock.now_ms())
        if isinstance(info, ProduceRow):
            info = final_refusal(self._services, peer, target.client_id, target.key, partition, records, info)
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

    def learn(
        self, frame: memoryview, context: RequestContext[ProduceServices], request: ProduceRequest
    ) -> None:
        if (
            len(request.topics) != 1
            or len(request.topics[0].partitions) != 1
            or request.acks not in _VALID_ACKS
            or context.api_version < FIRST_VERSION
        ):
            return
        key, (entry,) = request.topics[0]
        topic = context.services.partitions.by_key.get(key)
        if topic is None or not context.could(Operation.WRITE, ResourceType.TOPIC, topic.name):
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
