"""The fast path for repeats: OffsetCommits that equal an earlier one except for correlation id, offsets and leader epochs.

A consumer commits the same partitions again and again. The gateway remembers for each shape of such requests
the sender, the group, the partitions, and the bytes of the answer. The commit itself is judged by the same
code as any other commit. With an authorizer, each repeat asks for its rights anew, because clients with other
rights may send the same request.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from kio.schema.errors import ErrorCode

from gateway.coordinator.group.records import CommittedOffset, OffsetCommitRecord
from gateway.handlers.answering.api import NOT_REPEATED, Answer, Deferred, NotRepeated, Peer, RequestContext
from gateway.handlers.answering.named_twice import metadata_fits
from gateway.handlers.groups.commit_request import committer_of, known_error
from gateway.protocol.offset_commit_codec import OffsetCommitRequest, encode_offset_commit_response
from gateway.protocol.offset_commit_shape import FIRST_VERSION, PREFIX_START, CommitShape, prefix_end
from gateway.runtime.coordinators.moving import MOVER
from gateway.runtime.operations.operations import error_code_of
from gateway.runtime.partitions.registry import TopicPartitions
from gateway.runtime.services import Services
from gateway.security.acls.access import Access
from gateway.security.acls.codes import Operation, ResourceType

logger = logging.getLogger(__name__)

MAX_SHAPES: Final = 2048
"""Shapes remembered for each version. One more empties the table."""
MAX_FRAME_BYTES: Final = 1024
"""Longer requests are not remembered, and are decoded each time."""
MAX_CHANGES: Final = 8
"""Shapes remembered for each sender. If a sender uses more shapes, all its later requests are decoded."""

_new_tuple = tuple.__new__


class _Target:
    """The group, partitions and answer of the requests of one shape."""

    __slots__ = (
        "_answer_end",
        "_answer_size",
        "_api_version",
        "_last_indexes",
        "_names",
        "_places",
        "_topics",
        "changes",
        "committer",
        "shape",
    )

    def __init__(
        self,
        context: RequestContext[Services],
        request: OffsetCommitRequest,
        names: list[str],
        shape: CommitShape,
        changes: int,
    ) -> None:
        self.shape = shape
        self.changes = changes
        """The number of shapes that the same sender had before."""
        self.committer = committer_of(context.api_version, request)
        self._names = dict.fromkeys(names)
        self._places = [
            (name, entry.partition, entry.metadata)
            for name, (_, entries) in zip(names, request.topics, strict=True)
            for entry in entries
        ]
        self._topics = [(key, [entry.partition for entry in entries]) for key, entries in request.topics]
        self._last_indexes = [(key, max(indexes)) for key, indexes in self._topics]
        self._api_version = context.api_version
        answer = self._frame(0, ErrorCode.none)
        self._answer_size, self._answer_end = answer[:4], answer[8:]
        """The answer to a commit that succeeded, but for the correlation id between them."""

    def is_served(self, topics: dict[str | bytes, TopicPartitions]) -> bool:
        """Whether all partitions exist."""
        for key, last_index in self._last_indexes:
            topic = topics.get(key)
            if topic is None or not topic.has(last_index):
                return False
        return True

    def is_allowed(self, access: Access, peer: Peer) -> bool:
        """Return whether the client may commit these offsets of the group."""
        principal, host = peer.principal, peer.peer_host
        return access.allows(
            principal, host, Operation.READ, ResourceType.GROUP, self.committer.group_id
        ) and all(
            access.allows(principal, host, Operation.READ, ResourceType.TOPIC, name) for name in self._names
        )

    def records(
        self, offsets: Sequence[int], leader_epochs: Sequence[int], now_ms: int
    ) -> list[OffsetCommitRecord]:
        """Return the records that commit these offsets."""
        group_id = self.committer.group_id
        # The constructor of a NamedTuple costs three times as much, and this runs for every partition of every commit.
        return [
            _new_tuple(
                OffsetCommitRecord,
                (
                    group_id,
                    name,
                    index,
                    _new_tuple(CommittedOffset, (offset, leader_epoch, metadata, now_ms, -1)),
                ),
            )
            for (name, index, metadata), offset, leader_epoch in zip(
                self._places, offsets, leader_epochs, strict=True
            )
        ]

    def answer(
        self,
        deferred: Deferred,
        correlation_id: int,
        error_code: ErrorCode | None,
        error: Exception | None,
    ) -> None:
        """Answer a commit that is durable or refused."""
        try:
            if error_code is ErrorCode.none:
                correlation = correlation_id.to_bytes(4, "big", signed=True)
                frame = self._answer_size + correlation + self._answer_end
            else:
                code = error_code_of(error) if error_code is None else error_code
                frame = self._frame(correlation_id, known_error(self._api_version, code))
        except Exception:
            logger.exception(
                "OffsetCommit v%d of group %s failed", self._api_version, self.committer.group_id
            )
            deferred.fail()
        else:
            deferred.resolve(frame)

    def _frame(self, correlation_id: int, error: ErrorCode) -> bytes:
        code = int(error)
        rows = [(key, [(index, code) for index in indexes]) for key, indexes in self._topics]
        return encode_offset_commit_response(self._api_version, correlation_id, rows)


class CommitRepeats:
    """Begins repeats of OffsetCommit requests of one version (`Repeats`)."""

    def __init__(self, services: Services, api_version: int) -> None:
        self._services = services
        self._api_version = api_version
        self.begun = 0
        self._targets: dict[bytes, _Target] = {}
        """The remembered commits by the prefix of their requests.

        A prefix has one shape: that of the last decoded request.
        """

    def begin(
        self,
        peer: Peer,
        frame: memoryview,
        correlation_id: int,
        client_id_bytes: int,
    ) -> Answer | Deferred | NotRepeated | None:
        try:
            end = prefix_end(frame, self._api_version, client_id_bytes)
        except IndexError:
            return NOT_REPEATED
        target = self._targets.get(frame[PREFIX_START:end].tobytes())
        if target is None:
            return NOT_REPEATED
        services = self._services
        access = services.node.access
        if access.is_on and not target.is_allowed(access, peer):
            return NOT_REPEATED
        numbers = target.shape.numbers(frame)
        if numbers is None or not target.is_served(services.partitions.registry.by_key):
            return NOT_REPEATED
        self.begun += 1
        records = target.records(*numbers, services.node.clock.now_ms())
        deferred = Deferred(holds_back=True)
        services.coordinators.groups.begin_commit(
            target.committer, records, partial(target.answer, deferred, correlation_id)
        )
        return deferred

    def learn(
        self, frame: memoryview, context: RequestContext[Services], request: OffsetCommitRequest
    ) -> None:
        if context.api_version < FIRST_VERSION or len(frame) > MAX_FRAME_BYTES or request.member_id == MOVER:
            return
        names = _names(context, request)
        if names is None:
            return
        positions = [entry.position for _, entries in request.topics for entry in entries]
        client_id_bytes = int.from_bytes(frame[8:10], "big", signed=True)
        end = prefix_end(frame, self._api_version, client_id_bytes)
        if end > positions[0]:
            return
        prefix = frame[PREFIX_START:end].tobytes()
        known = self._targets.get(prefix)
        changes = 0 if known is None else known.changes + 1
        if changes >= MAX_CHANGES:
            return
        if len(self._targets) >= MAX_SHAPES:
            self._targets.clear()
        shape = CommitShape(bytes(frame), positions)
        self._targets[prefix] = _Target(context, request, names, shape, changes)


def _names(context: RequestContext[Services], request: OffsetCommitRequest) -> list[str] | None:
    """Return the names of the topics of a request; None for one that names nothing or must be refused in part."""
    by_key = context.services.partitions.registry.by_key
    names = []
    for key, entries in request.topics:
        topic = by_key.get(key)
        if topic is None or not entries:
            return None
        for entry in entries:
            if not topic.has(entry.partition) or (
                entry.metadata and not metadata_fits(context.node, entry.metadata)
            ):
                return None
        names.append(topic.name)
    return names or None
