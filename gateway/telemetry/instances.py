"""The clients that ask for subscriptions and push metrics, and when each may do so again.

A client may ask once in its push interval, which counts from its last question and from its last push. It may push once in its push
interval, which counts from its last push. So a push right after the client has asked is never too early. A terminating push comes at any
time, and is the last. A client whose push was refused for its subscription id or its compression may ask again at once. Source: Kafka's
ClientMetricsManager, ClientMetricsInstance.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from typing import Final

from kio.schema.errors import ErrorCode

from gateway.telemetry.clients import ClientDescription
from gateway.telemetry.subscriptions import Choice, Subscriptions

SHORTEST_LIFETIME_MS: Final = 60_000
LIFETIME_INTERVALS: Final = 3
HIGHEST_COMPRESSION_TYPE: Final = 4
_NEVER: Final = float("-inf")
_ASK_AGAIN: Final = frozenset({ErrorCode.unknown_subscription_id, ErrorCode.unsupported_compression_type})
"""The errors after which a client asks for its subscription at once."""


def lifetime_ms(choice: Choice) -> int:
    """Return the time (ms) without a request after which a client and its series are forgotten."""
    return max(SHORTEST_LIFETIME_MS, LIFETIME_INTERVALS * choice.push_interval_ms)


class ClientInstance:
    """One client: its subscription as it was last chosen, and its last requests. Times are milliseconds of one clock."""

    __slots__ = (
        "_last_asked_ms",
        "_last_error",
        "_last_pushed_ms",
        "choice",
        "description",
        "expires_ms",
        "is_terminating",
        "version",
    )

    def __init__(self, description: ClientDescription, choice: Choice, version: int) -> None:
        self.description = description
        self.choice = choice
        self.version = version
        """The version of the subscriptions from which `choice` was made."""
        self.expires_ms = 0.0
        self.is_terminating = False
        """Whether the last push was announced as the last."""
        self._last_asked_ms = self._last_pushed_ms = _NEVER
        self._last_error = ErrorCode.none

    def ask(self, now_ms: float) -> ErrorCode:
        """Judge a request for the subscription: no error, or THROTTLING_QUOTA_EXCEEDED."""
        if now_ms - max(self._last_asked_ms, self._last_pushed_ms) >= self.choice.push_interval_ms:
            self._last_asked_ms = now_ms
        elif self._last_error not in _ASK_AGAIN:
            return ErrorCode.throttling_quota_exceeded
        self._last_error = ErrorCode.none
        return ErrorCode.none

    def push(
        self,
        subscription_id: int,
        compression_type: int,
        metrics_bytes: int,
        now_ms: float,
        *,
        is_terminating: bool,
        max_bytes: int,
    ) -> ErrorCode:
        """Judge a push before its metrics are decoded; return the error that refuses it, or no error.

        `metrics_bytes` is the size of the metrics as they arrived.
        """
        error = self._push_error(
            subscription_id, compression_type, metrics_bytes, now_ms, max_bytes, is_terminating=is_terminating
        )
        # Kafka, too, takes over the flag of a refused push.
        self.is_terminating = is_terminating
        self._last_error = error
        return error

    def refuse_content(self, error: ErrorCode) -> None:
        """Note the error that refuses the metrics of the last push."""
        self._last_error = error

    def _push_error(
        self,
        subscription_id: int,
        compression_type: int,
        metrics_bytes: int,
        now_ms: float,
        max_bytes: int,
        *,
        is_terminating: bool,
    ) -> ErrorCode:
        if self.is_terminating:
            return ErrorCode.invalid_request
        if now_ms - self._last_pushed_ms >= self.choice.push_interval_ms:
            self._last_pushed_ms = now_ms
        elif not is_terminating:
            return ErrorCode.throttling_quota_exceeded
        if subscription_id != self.choice.subscription_id:
            return ErrorCode.unknown_subscription_id
        if not 0 <= compression_type <= HIGHEST_COMPRESSION_TYPE:
            return ErrorCode.unsupported_compression_type
        if metrics_bytes > max_bytes:
            return ErrorCode.telemetry_too_large
        return ErrorCode.none


class Instances:
    """The known clients by client instance id, the least recently active first."""

    def __init__(self) -> None:
        self._by_id: OrderedDict[uuid.UUID, ClientInstance] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, client_instance_id: uuid.UUID) -> bool:
        return client_instance_id in self._by_id

    def meet(
        self, description: ClientDescription, subscriptions: Subscriptions, now_ms: float, most: int
    ) -> ClientInstance:
        """Return the client, and restart its lifetime.

        A client that is new, or whose subscriptions have changed, begins anew, as if it had never asked; it keeps the description of
        its first request. When more than `most` clients are known, those that asked least recently are forgotten.
        """
        client_instance_id = description.client_instance_id
        known = self._by_id.get(client_instance_id)
        if known is None or known.version < subscriptions.version:
            described = description if known is None else known.description
            known = ClientInstance(described, subscriptions.choose(described), subscriptions.version)
            self._by_id[client_instance_id] = known
        known.expires_ms = now_ms + lifetime_ms(known.choice)
        self._by_id.move_to_end(client_instance_id)
        while len(self._by_id) > most:
            self._by_id.popitem(last=False)
        return known

    def drop(self, client_instance_id: uuid.UUID) -> None:
        """Forget a client, whose connection has closed."""
        self._by_id.pop(client_instance_id, None)

    def expire(self, now_ms: float) -> None:
        """Forget the clients whose lifetime has passed."""
        for client_instance_id in [key for key, known in self._by_id.items() if known.expires_ms <= now_ms]:
            del self._by_id[client_instance_id]
