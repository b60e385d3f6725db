"""What is asked on the control socket, and the frame of the answer; the results themselves are in `results`.

Lists that can grow long come in pages: an answer holds at most `limit` rows and where the next page begins.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

MAX_REQUEST_BYTES: Final = 64 * 1024
MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
PAGE_ROWS: Final = 1_000
MAX_PAGE_ROWS: Final = 10_000
DEFAULT_MIN_AGE_MS: Final = 3_600_000


class StatusRequest(msgspec.Struct, tag="status", tag_field="operation", forbid_unknown_fields=True):
    """How the gateway is."""


class ListBlocksRequest(msgspec.Struct, tag="pids.list", tag_field="operation", forbid_unknown_fields=True):
    """The blocks claimed, from the `position`-th on, in the order of their claims."""

    position: int = 0
    limit: int = PAGE_ROWS


class FindOwnerRequest(msgspec.Struct, tag="pids.owner", tag_field="operation", forbid_unknown_fields=True):
    """Which block holds a producer id."""

    producer_id: int


class FindOverlapsRequest(
    msgspec.Struct, tag="pids.overlaps", tag_field="operation", forbid_unknown_fields=True
):
    """Which blocks share ids."""


class ClaimBlockRequest(msgspec.Struct, tag="pids.claim", tag_field="operation", forbid_unknown_fields=True):
    """Claim a block for ids used outside the gateways."""

    size: int
    owner: str


class MoveNextRequest(msgspec.Struct, tag="pids.move", tag_field="operation", forbid_unknown_fields=True):
    """Hand out no id below `producer_id` any more."""

    producer_id: int


class ListProducersRequest(
    msgspec.Struct, tag="producers", tag_field="operation", forbid_unknown_fields=True
):
    """The active producers, by topic, partition and id, from the first one after `after` on."""

    topic: str | None = None
    partition: int | None = None
    after: tuple[str, int, int] | None = None
    """Topic, partition and producer id of the last row of the page before."""
    limit: int = PAGE_ROWS


class ReopenRequest(msgspec.Struct, tag="reopen", tag_field="operation", forbid_unknown_fields=True):
    """Bring an offline partition back."""

    topic: str
    partition: int


class ListGroupsRequest(msgspec.Struct, tag="groups.list", tag_field="operation", forbid_unknown_fields=True):
    """The groups by their ids, from the first one after `after` on; of the named states, or of all."""

    states: list[str] = []
    after: str | None = None
    limit: int = PAGE_ROWS


class DescribeGroupRequest(
    msgspec.Struct, tag="groups.describe", tag_field="operation", forbid_unknown_fields=True
):
    """One consumer group, with its partitions from the first one after `after` (topic, partition) on."""

    group: str
    after: tuple[str, int] | None = None
    limit: int = PAGE_ROWS


class TopicSelection(msgspec.Struct, forbid_unknown_fields=True):
    """A topic and some of its partitions, or all with None."""

    topic: str
    partitions: list[int] | None = None


ResetTarget: TypeAlias = Literal["earliest", "latest", "timestamp", "shift", "offset"]
"""Where offsets go; `timestamp`, `shift` and `offset` come with a value."""


class ResetOffsetsRequest(
    msgspec.Struct, tag="groups.reset", tag_field="operation", forbid_unknown_fields=True
):
    """Commit other offsets for a group without members, or only tell them unless `execute`.

    `topics` None means every partition that the group has a committed offset of.
    """

    group: str
    target: ResetTarget
    value: int = 0
    topics: list[TopicSelection] | None = None
    execute: bool = False


class DeleteGroupsRequest(
    msgspec.Struct, tag="groups.delete", tag_field="operation", forbid_unknown_fields=True
):
    """Delete groups without members, with their offsets; or only tell what would go unless `execute`."""

    groups: list[str]
    execute: bool = False


class BacklogRequest(msgspec.Struct, tag="backlog", tag_field="operation", forbid_unknown_fields=True):
    """The backlogs of a topic, with its partitions from the first one after `after` on."""

    topic: str
    after: int | None = None
    limit: int = PAGE_ROWS


class NamesRequest(msgspec.Struct, tag="names", tag_field="operation", forbid_unknown_fields=True):
    """The producer names that partitions remember, or one of them, by topic, partition and name, from `begin` on."""

    topic: str | None = None
    partition: int | None = None
    name: bytes | None = None
    begin: tuple[str, int, bytes | None] | None = None
    """What the page before told as `next`."""
    limit: int = PAGE_ROWS


class ListTransactionsRequest(
    msgspec.Struct, tag="transactions.list", tag_field="operation", forbid_unknown_fields=True
):
    """The transactional ids that pass every filter given, in order, from the first one after `after` on.

    `longer_than_ms` is of transactions that are under way, `pattern` of the whole id (RE2).
    """

    states: list[str] = []
    producer_ids: list[int] = []
    longer_than_ms: int | None = None
    pattern: str | None = None
    after: str | None = None
    limit: int = PAGE_ROWS


class DescribeTransactionRequest(
    msgspec.Struct, tag="transactions.describe", tag_field="operation", forbid_unknown_fields=True
):
    """One transactional id, with its partitions from the first one after `after` (topic, partition) on."""

    transactional_id: str
    after: tuple[str, int] | None = None
    limit: int = PAGE_ROWS


class FindHangingRequest(
    msgspec.Struct, tag="transactions.hanging", tag_field="operation", forbid_unknown_fields=True
):
    """The transactions that partitions have open and that nobody will end, by topic, partition and producer id."""

    topic: str | None = None
    partition: int | None = None
    after: tuple[str, int, int] | None = None
    """Topic, partition and producer id of the last row of the page before."""
    limit: int = PAGE_ROWS


class AbortTransactionRequest(
    msgspec.Struct, tag="transactions.abort", tag_field="operation", forbid_unknown_fields=True
):
    """Fence a producer and abort its open transaction, or only tell what that would do unless `execute`.

    With `start_ms` only the transaction that began then is aborted, not one that followed it.
    """

    transactional_id: str
    start_ms: int | None = None
    execute: bool = False


class AbortHangingRequest(
    msgspec.Struct, tag="transactions.abort-hanging", tag_field="operation", forbid_unknown_fields=True
):
    """Abort what one partition has open from `first_offset` on, or only tell what that is unless `execute`."""

    topic: str
    partition: int
    first_offset: int
    execute: bool = False


class SweepRequest(msgspec.Struct, tag="sweep", tag_field="operation", forbid_unknown_fields=True):
    """Begin to look for what belongs to nothing; with `remove` it is removed, what has no known name with `unknown` too."""

    remove: bool = False
    unknown: bool = False
    min_age_ms: int = DEFAULT_MIN_AGE_MS
    """Files that changed less long ago are passed over."""


class SweepResultRequest(
    msgspec.Struct, tag="sweep.result", tag_field="operation", forbid_unknown_fields=True
):
    """What the sweep under this task's number found so far, from the `position`-th leak on."""

    number: int
    position: int = 0
    limit: int = PAGE_ROWS


class ListTasksRequest(msgspec.Struct, tag="tasks", tag_field="operation", forbid_unknown_fields=True):
    """The long work that goes on, and the last that is over."""


SweepingRequest: TypeAlias = SweepRequest | SweepResultRequest | ListTasksRequest
TransactionRequest: TypeAlias = (
    ListTransactionsRequest
    | DescribeTransactionRequest
    | FindHangingRequest
    | AbortTransactionRequest
    | AbortHangingRequest
)
Request: TypeAlias = (
    StatusRequest
    | ListBlocksRequest
    | FindOwnerRequest
    | FindOverlapsRequest
    | ClaimBlockRequest
    | MoveNextRequest
    | ListProducersRequest
    | ReopenRequest
    | ListGroupsRequest
    | DescribeGroupRequest
    | ResetOffsetsRequest
    | DeleteGroupsRequest
    | BacklogRequest
    | NamesRequest
    | TransactionRequest
    | SweepingRequest
)


class Answer(msgspec.Struct, omit_defaults=True):
    """What comes back: the result, or a sentence that tells why there is none."""

    result: msgspec.Raw = msgspec.Raw(b"null")
    error: str | None = None
