"""The quotas of one key, and the choice of the one that applies to a client.

The most specific quota applies:

    user and client id
    user and default client id
    user
    default user and client id
    default user and default client id
    default user
    client id
    default client id

Each client of a default has the quota for itself. A quota of a client id is shared by all users who send that id, and a
quota of a user by all its client ids. Source: Kafka's ClientQuotaManager.DefaultQuotaCallback.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

DEFAULT: Final = ""
"""The name that stands for a default. No user and no client id of a quota has an empty name."""

Entity = tuple[str | None, str | None]
"""A user and a client id, each with a name, DEFAULT, or None when the quota does not depend on it."""
Client = tuple[str, str]
"""The user and the client id whose use is measured; empty where the quota does not depend on it."""


class _Level(NamedTuple):
    """One kind of entities: whether a user and a client id belong to it, and which of them is the default."""

    has_user: bool
    default_user: bool
    has_client: bool
    default_client: bool

    def entity(self, user: str, client_id: str) -> Entity:
        return (
            (DEFAULT if self.default_user else user) if self.has_user else None,
            (DEFAULT if self.default_client else client_id) if self.has_client else None,
        )


_LEVELS: Final = (
    _Level(True, False, True, False),
    _Level(True, False, True, True),
    _Level(True, False, False, False),
    _Level(True, True, True, False),
    _Level(True, True, True, True),
    _Level(True, True, False, False),
    _Level(False, False, True, False),
    _Level(False, False, True, True),
)
_LEVEL_OF: Final = {level.entity("named", "named"): level for level in _LEVELS}


def _level_of(entity: Entity) -> _Level:
    user, client_id = (name and "named" for name in entity)
    return _LEVEL_OF[user, client_id]


class Quota(NamedTuple):
    """The quota that applies to a client."""

    per_second: float
    client: Client
    """The user and the client id whose use counts towards the quota."""
    entity: Entity

    @property
    def is_default(self) -> bool:
        """Whether each of any number of clients has this quota for itself, because the quota is one of a default."""
        return DEFAULT in self.entity


class Limits:
    """The quotas with one quota key, such as `producer_byte_rate`, of all entities."""

    __slots__ = ("_counts", "_levels", "_per_second", "is_set")

    def __init__(self) -> None:
        self._per_second: dict[Entity, float] = {}
        self._counts: Counter[_Level] = Counter()
        """The number of entities of each kind that have a quota."""
        self._levels: tuple[_Level, ...] = ()
        """The kinds of entities that have a quota, the most specific first."""
        self.is_set = False
        """Whether any entity has a quota."""

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
        """Return the quota that applies to a client, None when none does. An empty client id has no quota of its own."""
        for level in self._levels:
            if level.has_client and not client_id:
                continue
            entity = level.entity(user, client_id)
            per_second = self._per_second.get(entity)
            if per_second is not None:
                client = (user if level.has_user else "", client_id if level.has_client else "")
                return Quota(per_second, client, entity)
        return None
