"""The charge of one request to the client quotas, while there are any.

Source: Kafka's KafkaApis and RequestHandlerHelper: the answer is sent at once and says for how long the
client is throttled. For that time the gateway does not read from the connection.
"""

from __future__ import annotations

from gateway.runtime.quotas.client_quotas import PERCENT, ClientQuotas

INT_MAX = 2**31 - 1


class Charge:
    """The use of one request, and the time for which its client must wait."""

    __slots__ = ("_client_id", "_quotas", "_user", "busy_s", "throttle_ms")

    def __init__(self, quotas: ClientQuotas, principal: str, client_id: str) -> None:
        self._quotas = quotas
        self._user = principal.partition(":")[2]
        self._client_id = client_id
        self.busy_s = 0.0
        """The time that the request has cost the event loop and threads, and that is not charged yet."""
        self.throttle_ms = 0
        """The time for which the client must wait after this request."""

    def count_produced(self, size_bytes: int) -> None:
        """Charge the bytes of a Produce request."""
        quotas = self._quotas
        self._throttle(quotas.produce.charge(self._user, self._client_id, size_bytes, quotas.now_ms))

    def count_fetched(self, size_bytes: int) -> None:
        """Charge bytes that are sent even if they exceed the quota."""
        quotas = self._quotas
        self._throttle(quotas.fetch.charge(self._user, self._client_id, size_bytes, quotas.now_ms))

    def count_fetched_beside(self, size_bytes: int) -> None:
        """Charge the bytes of a Fetch answer other than its records. These bytes throttle later fetches only."""
        quotas = self._quotas
        quotas.fetch.charge(self._user, self._client_id, size_bytes, quotas.now_ms)

    def may_fetch(self, size_bytes: int) -> bool:
        """Charge the bytes of a Fetch answer and return True; return False when the client must wait for them."""
        quotas = self._quotas
        throttle_ms = quotas.fetch.try_charge(self._user, self._client_id, size_bytes, quotas.now_ms)
        self._throttle(throttle_ms)
        return not throttle_ms

    def most_fetched(self, max_bytes: int) -> int:
        """Return `max_bytes`, or the fewer bytes that the quota ever lets through at once."""
        most = self._quotas.fetch.most_at_once(self._user, self._client_id)
        return int(most) if most is not None and most < max_bytes else max_bytes

    def may_mutate(self, partitions: int, *, strict: bool) -> bool:
        """Charge created or deleted partitions; return False when the client must wait before, and nothing was charged."""
        quotas = self._quotas
        allowed, throttle_ms = quotas.mutations.charge(
            self._user, self._client_id, partitions, quotas.now_ms, strict=strict
        )
        self._throttle(throttle_ms)
        return allowed

    def count_time(self) -> None:
        """Charge the time that the request has cost since the last call."""
        quotas = self._quotas
        percent = self.busy_s * PERCENT
        self.busy_s = 0.0
        self._throttle(quotas.request.charge(self._user, self._client_id, percent, quotas.now_ms))

    def _throttle(self, throttle_ms: int) -> None:
        self.throttle_ms = max(self.throttle_ms, throttle_ms)
