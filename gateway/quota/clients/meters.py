"""The meters of clients: what each client used. Memory is bounded whatever names clients make up.

A meter that was idle for an hour is dropped, as Kafka's sensors are. When as many clients as allowed have a meter, the
further clients of a default quota share one meter of that quota, until others are dropped.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from gateway.quota.clients.limits import Client, Entity, Quota

M = TypeVar("M")

IDLE_MS: Final = 3_600_000
"""A meter without use for this time is dropped (ClientQuotaManagerConfig.INACTIVE_SENSOR_EXPIRATION_TIME_SECONDS)."""
LONGEST_NAME: Final = 255
"""The longest name (characters) that a meter keeps.

Of a longer name, which a client may make up, the meter keeps the digest.
"""
DROPPED_AT_ONCE: Final = 4
"""Idle meters dropped with one look-up; the rest go with the next look-ups."""


class Meters(Generic[M]):
    """The meters by client: at most `most` of clients that have quotas of a default, and one of each client
    that has a quota of its own.
    """

    __slots__ = ("_make", "_meters", "most")

    def __init__(self, make: Callable[[], M], most: int) -> None:
        self._make = make
        self.most = most
        self._meters: OrderedDict[Client | Entity | tuple[Entity], tuple[M, list[int]]] = OrderedDict()
        """The meters and the times of their last use, the longest idle first."""

    def __len__(self) -> int:
        return len(self._meters)

    def of(self, quota: Quota, now_ms: int) -> M:
        """Return the meter of a client."""
        self._drop_idle(now_ms)
        meters = self._meters
        key: Client | tuple[Entity] = _short(quota.client)
        found = meters.get(key)
        if found is None:
            if quota.is_default and len(meters) >= self.most:
                key = (quota.entity,)
                found = meters.get(key)
            if found is None:
                found = meters[key] = self._make(), [now_ms]
        found[1][0] = now_ms
        meters.move_to_end(key)
        return found[0]

    def _drop_idle(self, now_ms: int) -> None:
        meters = self._meters
        for _ in range(DROPPED_AT_ONCE):
            if not meters:
                return
            _, (_, used_ms) = next(iter(meters.items()))
            if now_ms - used_ms[0] < IDLE_MS:
                return
            meters.popitem(last=False)


def _short(client: Client) -> Client:
    user, client_id = client
    if len(user) <= LONGEST_NAME and len(client_id) <= LONGEST_NAME:
        return client
    return _digest(user), _digest(client_id)


def _digest(name: str) -> str:
    if len(name) <= LONGEST_NAME:
        return name
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
