"""The client quotas of this node, as the metadata has them now.

The charge of one request to the client quotas, while there are any. Source: Kafka's KafkaApis and
RequestHandlerHelper: the answer is sent at once and says for how long the client is throttled. For that time
the gateway does not read from the connection.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from seqgate.gateway.config import Config
from seqgate.gateway.metadata.records import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    ClientQuotaRecord,
    MetadataRecord,
    QuotaEntity,
)
from seqgate.gateway.quota.client_quotas import DEFAULT, Entity, Limits, MutationQuota, RateQuota, Windows
from seqgate.gateway.runtime.loop.clock import Clock

if TYPE_CHECKING:
    from seqgate.gateway.runtime.topics.metadata_log import MetadataLog


class ClientQuotas:
    """The quotas of all keys. Without quotas, other parts read only `is_on` and `limits_connections`."""

    def __init__(self, config: Config, clock: Clock, seconds: Callable[[], float]) -> None:
        """Begin without quotas. `seconds` measures the time that requests cost."""
        self._clock = clock
        self.seconds = seconds
        windows = Windows(config.int("quota.window.num"), config.int("quota.window.size.seconds") * 1000)
        of_mutations = Windows(
            config.int("controller.quota.window.num"),
            config.int("controller.quota.window.size.seconds") * 1000,
        )
        most = 0  # `_take_limit` sets it below, and after each change
        self.produce = RateQuota(windows, most)
        self.fetch = RateQuota(windows, most)
        self.request = RateQuota(windows, most, longest_ms=windows.length_ms)
        self.mutations = MutationQuota(of_mutations, most)
        self.connections = RateQuota(windows, most, longest_ms=windows.length_ms)
        self.is_on = False
        """Whether there is a quota of users or client ids."""
        self.leaves_repeats = False
        """Whether a quota needs every request charged, so that no request takes a shorter way."""
        self.limits_connections = False
        """Whether there is a quota of addresses."""
        self._limits: dict[str, Limits] = {
            PRODUCER_BYTE_RATE: self.produce.limits,
            CONSUMER_BYTE_RATE: self.fetch.limits,
            REQUEST_PERCENTAGE: self.request.limits,
            CONTROLLER_MUTATION_RATE: self.mutations.limits,
            CONNECTION_CREATION_RATE: self.connections.limits,
        }
        config.follow(lambda: self._take_limit(config.int("seqgate.client.quotas.measured.max")))

    def _take_limit(self, most_meters: int) -> None:
        for quota in (self.produce, self.fetch, self.request, self.connections):
            quota.meters.most = most_meters
        self.mutations.meters.most = most_meters

    def follow(self, metadata_log: MetadataLog) -> None:
        """Apply the quotas of the metadata, now and after each change."""
        for entity, values in metadata_log.image.client_quotas.items():
            for key, value in values.items():
                self._change(entity, key, value)
        self._note()
        metadata_log.add_listener(self._metadata_changed)

    async def _metadata_changed(self, records: Sequence[MetadataRecord]) -> None:
        quotas = [record for record in records if isinstance(record, ClientQuotaRecord)]
        for record in quotas:
            self._change(record.entity, record.key, None if record.remove else record.value)
        if quotas:
            self._note()

    def _change(self, entity: QuotaEntity, key: str, value: float | None) -> None:
        limits = self._limits.get(key)
        if limits is not None:
            limits.change(_limited(entity), value)

    def _note(self) -> None:
        self.is_on = any(
            limits.is_set for limits in self._limits.values() if limits is not self.connections.limits
        )
        self.leaves_repeats = self.produce.limits.is_set or self.request.limits.is_set
        self.limits_connections = self.connections.limits.is_set

    @property
    def now_ms(self) -> int:
        return self._clock.now_ms()

    def delay_of_connection(self, host: str) -> int:
        """Count an address's new connection; return after how many ms to refuse it, 0 within the quota."""
        quota = self.connections
        now_ms = self.now_ms
        host = _address(host)
        throttle_ms = quota.charge("", host, 1.0, now_ms)
        if throttle_ms:
            quota.charge("", host, -1.0, now_ms)
        return throttle_ms


def _limited(entity: QuotaEntity) -> Entity:
    """Return the entity in the form of the quota rules, which treat an address as a client id."""
    names = {kind: DEFAULT if name is None else name for kind, name in entity}
    if IP in names:
        return None, names[IP] and _address(names[IP])
    return names.get(USER), names.get(CLIENT_ID)


def _address(text: str) -> str:
    """Return an address in the one form in which addresses are compared."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:  # the peer has hung up already and has no address
        return text
    return str(getattr(address, "ipv4_mapped", None) or address)


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
        quotas = self._quotas
        self._throttle(quotas.produce.charge(self._user, self._client_id, size_bytes, quotas.now_ms))

    def count_fetched(self, size_bytes: int) -> None:
        """Charge bytes that are sent even if they exceed the quota."""
        quotas = self._quotas
        self._throttle(quotas.fetch.charge(self._user, self._client_id, size_bytes, quotas.now_ms))

    def count_fetched_beside(self, size_bytes: int) -> None:
        """Charge the bytes of a Fetch answer other than its records: they throttle later fetches only."""
        quotas = self._quotas
        quotas.fetch.charge(self._user, self._client_id, size_bytes, quotas.now_ms)

    def may_fetch(self, size_bytes: int) -> bool:
        """Charge the bytes of a Fetch answer and return True; False when the client must wait for them."""
        quotas = self._quotas
        throttle_ms = quotas.fetch.try_charge(self._user, self._client_id, size_bytes, quotas.now_ms)
        self._throttle(throttle_ms)
        return not throttle_ms

    def most_fetched(self, max_bytes: int) -> int:
        """Return `max_bytes`, or the fewer bytes that the quota ever lets through at once."""
        most = self._quotas.fetch.most_at_once(self._user, self._client_id)
        return int(most) if most is not None and most < max_bytes else max_bytes

    def may_mutate(self, partitions: int, *, strict: bool) -> bool:
        """Charge created or deleted partitions; return False if the client must wait first, uncharged."""
        quotas = self._quotas
        allowed, throttle_ms = quotas.mutations.charge(
            self._user, self._client_id, partitions, quotas.now_ms, strict=strict
        )
        self._throttle(throttle_ms)
        return allowed

    def count_time(self) -> None:
        """Charge the time that the request has cost since the last call."""
        quotas = self._quotas
        percent = self.busy_s * 100.0
        self.busy_s = 0.0
        self._throttle(quotas.request.charge(self._user, self._client_id, percent, quotas.now_ms))

    def _throttle(self, throttle_ms: int) -> None:
        self.throttle_ms = max(self.throttle_ms, throttle_ms)
