"""The client quotas of this node, as the metadata has them now."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from gateway.config import Config
from gateway.metadata.client_quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
)
from gateway.metadata.records import ClientQuotaRecord, MetadataRecord, QuotaEntity
from gateway.quota.clients.client_quotas import DEFAULT, Entity, Limits, MutationQuota, RateQuota, Windows
from gateway.runtime.loop.clock import Clock

if TYPE_CHECKING:
    from gateway.runtime.topics.metadata_log import MetadataLog

PERCENT: Final = 100.0


class ClientQuotas:
    """The quotas of all keys. When there are no quotas, other parts read only `is_on` and `limits_connections`."""

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
        """Whether there is a quota for which every request must be charged, so that no request takes a shorter way."""
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
        """The present wall-clock time (ms)."""
        return self._clock.now_ms()

    def delay_of_connection(self, host: str) -> int:
        """Count a new connection of an address; return the time (ms) after which to refuse the connection, 0
        when it is within the quota.
        """
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
