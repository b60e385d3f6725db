"""Clients are throttled by the acknowledged quotas, also across crashes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import pytest

from seqgate.gateway.metadata.records import MetadataRecord
from seqgate.gateway.quota.client_quotas import Limits, Quota, RateQuota
from seqgate.gateway.runtime.client_quotas import ClientQuotas
from seqgate.gateway.server.intake import Intake
from tests.simulation.changing_quotas import Run

SEEDS = range(6)


def test_throttle_times_follow_acknowledged_changes() -> None:
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        run = Run(seed).execute()
        assert not run.breaches, f"seed {seed}: {run.breaches[:5]}"
        counts += run.counts
    # A run without requests on every side of a quota, changes or crashes would find no breach.
    assert counts["changes"] > 5 * len(SEEDS), counts
    assert min(counts["no quota"], counts["within quota"]) > 30 * len(SEEDS), counts
    assert counts["over quota"] > 3 * len(SEEDS), counts
    assert counts["pressed"] > len(SEEDS), counts
    assert counts["kill"] + counts["power cut"] > len(SEEDS), counts


def test_a_seed_decides_everything() -> None:
    assert Run(1).execute().counts == Run(1).execute().counts


def followed_later() -> Any:
    """The quotas follow the metadata log after the change was answered."""
    follow: Callable[..., Any] = ClientQuotas._metadata_changed

    async def later(self: ClientQuotas, records: Sequence[MetadataRecord]) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(0.5, lambda: loop.create_task(follow(self, records)))

    return mock.patch.object(ClientQuotas, "_metadata_changed", later)


def forgotten_at_the_start() -> Any:
    """A start does not read the quotas."""

    def follow(self: ClientQuotas, metadata_log: Any) -> None:
        metadata_log.add_listener(self._metadata_changed)

    return mock.patch.object(ClientQuotas, "follow", follow)


def default_first() -> Any:
    """The least specific quota applies."""
    quota_of: Callable[..., Quota | None] = Limits.quota_of

    def reversed_levels(self: Limits, user: str, client_id: str) -> Quota | None:
        levels, self._levels = self._levels, self._levels[::-1]
        try:
            return quota_of(self, user, client_id)
        finally:
            self._levels = levels

    return mock.patch.object(Limits, "quota_of", reversed_levels)


def never_muted() -> Any:
    """The gateway reads on from a client that is over its quota."""
    return mock.patch.object(Intake, "mute", return_value=None)


def counted_wrongly(factor: float) -> Any:
    charge: Callable[..., int] = RateQuota.charge

    def wrongly(self: RateQuota, user: str, client_id: str, value: float, now_ms: int) -> int:
        return charge(self, user, client_id, factor * value, now_ms)

    return mock.patch.object(RateQuota, "charge", wrongly)


def counted_twice() -> Any:
    """Each request is charged twice."""
    return counted_wrongly(2.0)


def counted_by_a_half() -> Any:
    """A half of each request is charged."""
    return counted_wrongly(0.5)


@pytest.mark.parametrize(
    "mistake",
    [followed_later, forgotten_at_the_start, default_first, never_muted, counted_twice, counted_by_a_half],
)
def test_a_mistake_is_found(mistake: Callable[[], Any]) -> None:
    with mistake():
        assert any(Run(seed).execute().breaches for seed in SEEDS), mistake.__doc__
