"""A decision is never older than an acknowledged change of the access control entries, also across crashes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import pytest

from seqgate.gateway.metadata.records import MetadataRecord
from seqgate.gateway.runtime.topics import acl_access
from seqgate.gateway.security.acls.authorizer import Authorizer
from tests.simulation.changing_rights import Run

SEEDS = range(6)


def test_decisions_follow_acknowledged_changes() -> None:
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        run = Run(seed).execute()
        assert not run.breaches, f"seed {seed}: {run.breaches[:5]}"
        counts += run.counts
    # A run without decisions, changes or crashes would find no breach.
    assert counts["changes"] > 20 * len(SEEDS)
    assert min(counts["allowed"], counts["refused"]) > 50 * len(SEEDS)
    assert counts["kill"] + counts["power cut"] > len(SEEDS)


def remembered_for_ever() -> Any:
    """Decisions survive a change of the entries."""

    def changed(self: Authorizer) -> None:
        self.generation += 1

    return mock.patch.object(Authorizer, "_changed", changed)


def followed_later() -> Any:
    """The authorizer follows the metadata log after the change was answered."""
    follow: Callable[..., Any] = acl_access._Following.metadata_changed

    async def later(self: acl_access._Following, records: Sequence[MetadataRecord]) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(0.2, lambda: loop.create_task(follow(self, records)))

    return mock.patch.object(acl_access._Following, "metadata_changed", later)


def forgotten_at_the_start() -> Any:
    """A start does not read the entries."""
    return mock.patch.object(acl_access, "_stored_entries", side_effect=lambda _: {})


@pytest.mark.parametrize("mistake", [remembered_for_ever, followed_later, forgotten_at_the_start])
def test_a_mistake_is_found(mistake: Callable[[], Any]) -> None:
    with mistake():
        assert any(Run(seed).execute().breaches for seed in SEEDS), mistake.__doc__
