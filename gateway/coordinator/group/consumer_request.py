"""A ConsumerGroupHeartbeat request: its content and its validation.

Source: Kafka's `GroupMetadataManager.throwIfConsumerGroupHeartbeatRequestIsInvalid`.
"""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass
from typing import Any, Final, Protocol

import re2
from kio.schema.errors import ErrorCode

from gateway.coordinator.group.consumer_assignors import ASSIGNORS
from gateway.coordinator.group.consumer_group import JOINING, LEAVING_FOR_A_WHILE
from gateway.coordinator.group.regex_topics import EVERYTHING, Sight
from gateway.coordinator.places import Place

MAX_REGEX_CHARACTERS: Final = 1000
MAX_REGEXES: Final = 100
"""Different regular expressions of one group. A member with a further expression is refused
(GROUP_MAX_SIZE_REACHED), because all expressions are matched against all topics when topics change. Kafka has
no such limit.
"""
MAX_ID_BYTES: Final = 1024
"""Longest id accepted, far longer than any client needs; every record of a member repeats its ids."""
MAX_SUBSCRIPTION_BYTES: Final = 256 << 10
"""Longest subscription accepted: a member's record must fit into a batch of the log."""
MAX_EXPIRED_AT_ONCE: Final = 100
"""Members removed in one call, so that their records fit into one batch; the next call removes the rest."""
_REGEX_OPTIONS: Final = re2.Options()
_REGEX_OPTIONS.log_errors = False


class MigrationPolicy(enum.Enum):
    """The protocols to which a group with members may change: the setting `group.consumer.migration.policy`.

    The values are the names of Kafka's ConsumerGroupMigrationPolicy.
    """

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def allows_upgrade(self) -> bool:
        """Whether a classic group may become a consumer group."""
        return self in {MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE}

    @property
    def allows_downgrade(self) -> bool:
        """Whether a consumer group may become a classic group."""
        return self in {MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE}


@dataclass(frozen=True, slots=True)
class ConsumerLimits:
    """The limits of a consumer group: the settings `group.consumer.*` in `docs/configuration.md`."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2**31 - 1
    assignment_interval_ms: int = 0
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL


def interval_is_over(assigned_at_ms: int, interval_ms: int, now_ms: int) -> bool:
    """Return whether a group may make a new target (KIP-1263): the last target is old enough, or its time is unknown.

    A last target in the future was made before the clock was set back.
    """
    return not assigned_at_ms or not 0 <= now_ms - assigned_at_ms < interval_ms


class Topics(Protocol):
    """The topics of the cluster, internal ones too: name to (topic id, number of partitions)."""

    def describe(self, name: str) -> tuple[uuid.UUID, int] | None: ...

    def names(self) -> list[str]: ...


class _NoTopics:
    def describe(self, name: str) -> None:
        """Return None, as for a topic that does not exist."""

    def names(self) -> list[str]:
        return []


NO_TOPICS: Final[Topics] = _NoTopics()


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat request. A field that is None has not changed since the member's last request."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    subscribed_names: tuple[str, ...] | None
    subscribed_regex: str | None
    server_assignor: str | None
    owned: frozenset[Place] | None
    sight: Sight = EVERYTHING
    """The topics that the regular expressions of the group may match for this client."""

    @property
    def is_full(self) -> bool:
        """Whether the request is complete, as a member sends it when it joins or lost an answer."""
        has_subscription = self.subscribed_names is not None or self.subscribed_regex is not None
        return self.member_epoch == JOINING or (
            self.rebalance_timeout_ms != -1 and has_subscription and self.owned is not None
        )


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """The answer to a heartbeat; `assignment` is None when the member has it already."""

    member_id: str
    member_epoch: int
    assignment: frozenset[Place] | None


class HeartbeatRefused(Exception):
    """A heartbeat is refused with this error code and message."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


def check(request: Heartbeat) -> None:
    """Validate the request. Raises HeartbeatRefused."""
    epoch = request.member_epoch
    invalid = ErrorCode.invalid_request
    for what, text in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if text is not None and not text.strip():
            raise HeartbeatRefused(invalid, f"{what} can't be empty.")
    if not request.member_id.strip():
        raise HeartbeatRefused(invalid, "MemberId can't be empty.")
    _check_sizes(request)
    if epoch < LEAVING_FOR_A_WHILE:
        raise HeartbeatRefused(invalid, f"MemberEpoch is invalid: {epoch}.")
    if epoch == LEAVING_FOR_A_WHILE and request.instance_id is None:
        raise HeartbeatRefused(invalid, "InstanceId can't be null.")
    if epoch == JOINING:
        if request.rebalance_timeout_ms == -1:
            raise HeartbeatRefused(invalid, "RebalanceTimeoutMs must be provided in first request.")
        if request.owned is None or request.owned:
            raise HeartbeatRefused(invalid, "TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_names is None and request.subscribed_regex is None:
            text = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            raise HeartbeatRefused(invalid, text)
    assignor = request.server_assignor
    if assignor is not None and assignor not in ASSIGNORS:
        raise HeartbeatRefused(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {assignor} is not supported. Supported assignors: {', '.join(ASSIGNORS)}.",
        )
    if request.subscribed_regex:
        compiled(request.subscribed_regex)


def _check_sizes(request: Heartbeat) -> None:
    for what, text in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
        ("MemberId", request.member_id),
    ):
        if text is not None and len(text.encode()) > MAX_ID_BYTES:
            problem = f"{what} can't be longer than {MAX_ID_BYTES} bytes."
            raise HeartbeatRefused(ErrorCode.invalid_request, problem)
    if sum(len(name.encode()) for name in request.subscribed_names or ()) > MAX_SUBSCRIPTION_BYTES:
        problem = f"SubscribedTopicNames can't be longer than {MAX_SUBSCRIPTION_BYTES} bytes."
        raise HeartbeatRefused(ErrorCode.invalid_request, problem)


def compiled(pattern: str) -> Any:
    """Return a regular expression that matches in linear time. Raises HeartbeatRefused."""
    complaint = f"it has {len(pattern)} characters; at most {MAX_REGEX_CHARACTERS} are allowed"
    if len(pattern) <= MAX_REGEX_CHARACTERS:
        try:
            return re2.compile(pattern, _REGEX_OPTIONS)
        except re2.error as error:
            complaint = str(error)
    raise HeartbeatRefused(
        ErrorCode.invalid_regular_expression,
        f"SubscribedTopicRegex `{pattern[:100]}` is not a valid regular expression: {complaint}.",
    )
