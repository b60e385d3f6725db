"""The quotas of clients: which quota applies to a client, what the client has used, and how long it must
wait.

`Limits` has the quotas of one key. The most specific one applies to a client:

    user and client id
    user and default client id
    user
    default user and client id
    default user and default client id
    default user
    client id
    default client id

Each client of a default has the quota for itself. A quota of a client id is shared by all users who send that
id, and a quota of a user by all its client ids. Source: Kafka's ClientQuotaManager.DefaultQuotaCallback.

`Meters` has what each client used. Memory is bounded whatever names clients make up. A meter that was idle
for an hour is dropped, as Kafka's sensors are. When as many clients as allowed have a meter, the further
clients of a default quota share one meter of that quota, until others are dropped.

`Rate` is the rate of a quantity over the last windows of time, and tells after which time the rate is within
a quota. Source: Kafka's Rate and SampledStat. Windows before the first use count as empty ones, so that a
short burst is no violation.

`TokenBucket` has permits, and fills up at the rate of a quota. Source: Kafka's TokenBucket,
ControllerMutationQuotaManager.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

DEFAULT: Final = ""
"""The name that stands for a default. No user and no client id of a quota has an empty name."""

Entity = tuple[str | None, str | None]
"""A user and a client id, each with a name, DEFAULT, or None when the quota does not depend on it."""
Client = tuple[str, str]
"""The user and the client id whose use is measured; empty where the quota does not depend on it."""


_NAMED: Final = "named"
_LEVELS: Final[tuple[Entity, ...]] = (
    (_NAMED, _NAMED),
    (_NAMED, DEFAULT),
    (_NAMED, None),
    (DEFAULT, _NAMED),
    (DEFAULT, DEFAULT),
    (DEFAULT, None),
    (None, _NAMED),
    (None, DEFAULT),
)
"""The kinds of entities, the most specific first: _NAMED stands for any name."""


def _level_of(entity: Entity) -> Entity:
    user, client_id = (name and _NAMED for name in entity)
    return user, client_id


class Quota(NamedTuple):
    per_second: float
    client: Client
    """The user and the client id whose use counts towards the quota."""
    entity: Entity

    @property
    def is_default(self) -> bool:
        """Whether each client has this quota for itself, because the quota is one of a default."""
        return DEFAULT in self.entity


class Limits:
    """The quotas with one quota key, such as `producer_byte_rate`, of all entities."""

    def __init__(self) -> None:
        self._per_second: dict[Entity, float] = {}
        self._counts: Counter[Entity] = Counter()
        """The number of entities of each kind that have a quota."""
        self._levels: tuple[Entity, ...] = ()
        """The kinds of entities that have a quota, the most specific first."""
        self.is_set = False

    def change(self, entity: Entity, per_second: float | None) -> None:
        """Set the quota of an entity, or remove it with None."""
        before = len(self._per_second)
        if per_second is None:
            self._per_second.pop(entity, None)
        else:
            self._per_second[entity] = per_second
        self._counts[_level_of(entity)] += len(self._per_second) - before
        self._levels = tuple(level for level in _LEVELS if self._counts[level])
        self.is_set = bool(self._per_second)

    def quota_of(self, user: str, client_id: str) -> Quota | None:
        """Return the quota of a client, None if none applies. An empty client id has no quota of its own."""
        for of_user, of_client in self._levels:
            if of_client is not None and not client_id:
                continue
            entity = (user if of_user else of_user, client_id if of_client else of_client)
            per_second = self._per_second.get(entity)
            if per_second is not None:
                client = ("" if of_user is None else user, "" if of_client is None else client_id)
                return Quota(per_second, client, entity)
        return None


M = TypeVar("M")

IDLE_MS: Final = 3_600_000
"""A meter unused so long is dropped (ClientQuotaManagerConfig.INACTIVE_SENSOR_EXPIRATION_TIME_SECONDS)."""
LONGEST_NAME: Final = 255
"""The longest name (characters) that a meter keeps; of a longer one, perhaps made up, it keeps a digest."""
DROPPED_AT_ONCE: Final = 4
"""Idle meters dropped with one look-up; the rest go with the next look-ups."""


class Meters(Generic[M]):
    """Meters by client: at most `most` with quotas of a default, and one per client with its own quota."""

    def __init__(self, make: Callable[[], M], most: int) -> None:
        self._make = make
        self.most = most
        self._meters: OrderedDict[Client | Entity | tuple[Entity], tuple[M, list[int]]] = OrderedDict()
        """The meters and the times of their last use, the longest idle first."""

    def __len__(self) -> int:
        return len(self._meters)

    def of(self, quota: Quota, now_ms: int) -> M:
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
            if abs(now_ms - used_ms[0]) < IDLE_MS:  # negative after the clock was set back
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


class MutationQuota:
    """The quotas of `controller_mutation_rate`: of created and deleted partitions (KIP-599)."""

    def __init__(self, windows: Windows, most_meters: int) -> None:
        self.limits = Limits()
        self.meters = Meters(lambda: TokenBucket(windows), most_meters)

    def charge(self, user: str, client_id: str, count: int, now_ms: int, *, strict: bool) -> tuple[bool, int]:
        """Count a client's changes; return whether they may be made, and how long it must wait. `strict`
        refuses, uncounted, changes while permits are overdrawn; else it waits after the one that overdraws.
        """
        quota = self.limits.quota_of(user, client_id)
        if quota is None:
            return True, 0
        bucket = self.meters.of(quota, now_ms)
        if strict:
            throttle_ms = bucket.throttle_ms(quota.per_second, now_ms)
            if throttle_ms:
                return False, throttle_ms
            bucket.take(count, quota.per_second, now_ms)
            return True, 0
        bucket.take(count, quota.per_second, now_ms)
        return True, bucket.throttle_ms(quota.per_second, now_ms)


INT_MAX: Final = 2**31 - 1


class Windows(NamedTuple):
    """The number of windows of a rate, the present one included, and the length of each."""

    number: int
    length_ms: int

    @property
    def seconds(self) -> float:
        """The length of all windows together."""
        return self.number * self.length_ms / 1000


class _Sample(msgspec.Struct):
    begun_ms: int
    last_ms: int
    total: float = 0.0


class Rate:
    __slots__ = ("_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: deque[_Sample] = deque()

    def record(self, value: float, now_ms: int) -> None:
        """Add a value to the present window; a negative value is subtracted."""
        samples = self._samples
        if samples and now_ms < samples[-1].begun_ms:
            samples.clear()  # the clock was set back
        if not samples or now_ms - samples[-1].begun_ms >= self._windows.length_ms:
            samples.append(_Sample(now_ms, now_ms))
            if len(samples) > self._windows.number + 1:
                samples.popleft()
        samples[-1].total += value
        samples[-1].last_ms = now_ms

    def total(self, now_ms: int) -> float:
        """Return the sum of the windows that count."""
        self._drop_old(now_ms)
        return sum(sample.total for sample in self._samples)

    def throttle_ms(self, per_second: float, now_ms: int) -> int:
        """Return how long nothing may be added until the rate is `per_second` again; 0 if not exceeded."""
        total = self.total(now_ms)
        over_ms = self._measured_ms(now_ms)
        if over_ms <= 0:
            return 0
        rate = total * 1000 / over_ms
        if not rate > per_second:
            return 0
        return int(min((rate - per_second) / per_second * over_ms + 0.5, INT_MAX))

    def _drop_old(self, now_ms: int) -> None:
        number, length_ms = self._windows
        samples = self._samples
        if samples and now_ms < samples[-1].begun_ms:
            samples.clear()
        while samples and now_ms - samples[0].last_ms >= number * length_ms:
            samples.popleft()

    def _measured_ms(self, now_ms: int) -> int:
        """Return the time over which the rate is measured: whole windows are missing at the beginning."""
        number, length_ms = self._windows
        elapsed_ms = now_ms - self._samples[0].begun_ms if self._samples else 0
        missing = number - 1 - elapsed_ms // length_ms
        return elapsed_ms + max(0, missing) * length_ms


# Quotas of rates: bytes, percentages of the gateway's time, connections.


class _Meter(Rate):
    """The rate of what one client used, and since when it has waited for a use that no windows can hold."""

    __slots__ = ("due_ms",)

    def __init__(self, windows: Windows) -> None:
        super().__init__(windows)
        self.due_ms: int | None = None
        """The time from which such a use is allowed; None when the client waits for none."""


class RateQuota:
    """The quotas of one rate. A client that exceeds its quota waits until its rate is within it again."""

    def __init__(self, windows: Windows, most_meters: int, *, longest_ms: int = INT_MAX) -> None:
        """Begin without quotas. `longest_ms` is the longest time for which a client must wait."""
        self.windows = windows
        self._longest_ms = longest_ms
        self.limits = Limits()
        self.meters = Meters(lambda: _Meter(windows), most_meters)

    def charge(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Count what a client used; return the time for which it must wait."""
        quota = self.limits.quota_of(user, client_id)
        if quota is None:
            return 0
        rate = self.meters.of(quota, now_ms)
        rate.record(value, now_ms)
        return min(rate.throttle_ms(quota.per_second, now_ms), self._longest_ms)

    def try_charge(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Count what a client wants to use, unless it must wait for that; return the time for which it must
        wait. A use that exceeds the quota even when nothing else was used is refused once. It is allowed when
        the client asks again after the time for which it had to wait. Otherwise it would never be allowed.
        """
        quota = self.limits.quota_of(user, client_id)
        if quota is None:
            return 0
        meter = self.meters.of(quota, now_ms)
        meter.record(value, now_ms)
        throttle_ms = min(meter.throttle_ms(quota.per_second, now_ms), self._longest_ms)
        if not throttle_ms:
            return 0
        if value > self._most(quota):
            if meter.due_ms is not None and now_ms >= meter.due_ms:
                meter.due_ms = None
                return 0
            # The first refusal counts. A later one only ends the wait earlier, after the clock was set back.
            due_ms = now_ms + throttle_ms
            meter.due_ms = due_ms if meter.due_ms is None else min(meter.due_ms, due_ms)
        meter.record(-value, now_ms)
        return throttle_ms

    def most_at_once(self, user: str, client_id: str) -> float | None:
        """Return the largest value that exceeds no quota when nothing else was used; None without a quota."""
        quota = self.limits.quota_of(user, client_id)
        return None if quota is None else self._most(quota)

    def _most(self, quota: Quota) -> float:
        return quota.per_second * (self.windows.number - 1) * self.windows.length_ms / 1000


class TokenBucket:
    """The unused permits of a quota, at most those of `windows`; negative when they are overdrawn."""

    __slots__ = ("_permits", "_refilled_ms", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._permits: float | None = None
        self._refilled_ms = 0

    def permits(self, per_second: float, now_ms: int) -> float:
        most = per_second * self._windows.seconds
        if self._permits is None:
            self._permits = most
        else:
            passed_s = max(0, now_ms - self._refilled_ms) / 1000
            self._permits = min(most, self._permits + per_second * passed_s)
        self._refilled_ms = now_ms
        return self._permits

    def take(self, count: float, per_second: float, now_ms: int) -> None:
        """Take permits; the bucket may become overdrawn."""
        self._permits = self.permits(per_second, now_ms) - count

    def throttle_ms(self, per_second: float, now_ms: int) -> int:
        """Return the time after which no permit is overdrawn; 0 when none is."""
        permits = self.permits(per_second, now_ms)
        return int(min(-permits / per_second * 1000 + 0.5, INT_MAX)) if permits < 0 else 0
