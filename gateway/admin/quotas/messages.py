"""The JSON output of `seqgate quotas … --json`."""

from __future__ import annotations

import msgspec


class QuotaRow(msgspec.Struct, frozen=True):
    """An entity and its quotas, by Kafka's names. A name of null is the default of its type."""

    entity: dict[str, str | None]
    quotas: dict[str, float]


class QuotaListing(msgspec.Struct, frozen=True):
    """The entities that have quotas."""

    entities: list[QuotaRow]


class QuotaChange(msgspec.Struct, frozen=True):
    """The quotas of an entity that a command has set and removed."""

    entity: dict[str, str | None]
    set: dict[str, float]
    unset: list[str]
