"""A login is decided by the acknowledged passwords, also across crashes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import pytest

from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.records import (
    MetadataRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from seqgate.gateway.metadata.users import StoredUsers
from seqgate.gateway.runtime.topics import metadata_log
from seqgate.gateway.security.sasl.scram_credential import ScramCredential, ScramHash
from tests.simulation.changing_users import Run

SEEDS = range(6)

UserRecord = UserScramCredentialRecord | RemoveUserScramCredentialRecord
replay = StoredUsers.replay
find = StoredUsers.find


def test_logins_follow_acknowledged_changes() -> None:
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        run = Run(seed).execute()
        assert not run.breaches, f"seed {seed}: {run.breaches[:5]}"
        counts += run.counts
    # A run without logins of every kind, changes or crashes would find no breach.
    assert min(counts["upsertions"], counts["removals"]) > 2 * len(SEEDS), counts
    assert min(counts["former, no present"], counts["former, another present"]) > 5 * len(SEEDS), counts
    assert counts["right"] > 30 * len(SEEDS), counts
    assert counts["kill"] + counts["power cut"] > len(SEEDS)


def test_a_seed_decides_everything() -> None:
    assert Run(1).execute().counts == Run(1).execute().counts


def remembered_for_ever() -> Any:
    """A listener keeps the credential that it found first."""
    found: dict[tuple[StoredUsers, ScramHash, str], ScramCredential | None] = {}

    def remember(self: StoredUsers, hashing: ScramHash, name: str) -> ScramCredential | None:
        key = self, hashing, name
        if found.get(key) is None:
            found[key] = find(self, hashing, name)
        return found[key]

    return mock.patch.object(StoredUsers, "find", remember)


def followed_later() -> Any:
    """The users follow the metadata log after the change was answered."""

    def later(self: StoredUsers, record: UserRecord) -> None:
        asyncio.get_running_loop().call_later(0.2, partial(replay, self, record))

    return mock.patch.object(StoredUsers, "replay", later)


def removed_until_the_next_start() -> Any:
    """A start reads the users, and not their removals."""

    def replay_log(log: Any, image: MetadataImage) -> int:
        records = list(metadata_log.read_records(log, log.log_start_offset))
        kept: list[MetadataRecord] = [
            record for record in records if not isinstance(record, RemoveUserScramCredentialRecord)
        ]
        for record in kept:
            image.replay(record)
        return len(records)

    return mock.patch.object(metadata_log, "replay_log", replay_log)


@pytest.mark.parametrize("mistake", [remembered_for_ever, followed_later, removed_until_the_next_start])
def test_a_mistake_is_found(mistake: Callable[[], Any]) -> None:
    with mistake():
        assert any(Run(seed).execute().breaches for seed in SEEDS), mistake.__doc__
