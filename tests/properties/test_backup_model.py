"""Random lives of a data directory that is backed up again and again, each backup compared with what the logs
had then.
"""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from seqgate.gateway.backup.repository import Repository
from seqgate.log import Storage
from tests.properties.backup_life import BackupLife, check_restored
from tests.support.seeds import FIXED_SEED, chosen_seed

LIVES = 7
BACKUPS = 3


@pytest.mark.parametrize("number", range(LIVES))
def test_a_backup_has_what_every_log_had_at_one_moment(tmp_path: Path, number: int) -> None:
    rng = random.Random(chosen_seed() * 1_000 + number)
    life = BackupLife(tmp_path, rng)
    repository = Repository(Storage(), str(tmp_path / "backups"))
    for count in range(BACKUPS):
        for _ in range(rng.randrange(40)):
            life.act()
        kind = rng.choice(["live", "live", "live", "stopped", "killed"])
        if kind == "live":
            staged, expected = life.stage_live()
        else:
            staged, expected = life.stage_after_stop(clean=kind == "stopped")
        restored = tmp_path / f"restored-{count}"
        life.back_up(repository, staged, restored)
        check_restored(restored, expected)
    assert len(repository.complete_backups()) == BACKUPS
    assert life.interruptions > 0
    life.directory.close(clean=False)


def test_bytes_of_a_later_moment_would_be_noticed(tmp_path: Path) -> None:
    """A planted mistake: a copy of whole files has what was appended after the capture."""
    life = BackupLife(tmp_path, random.Random(FIXED_SEED))
    life.act()
    staged, expected = life.stage_live()
    ends = {key: life.log(key).log_end_offset for key in life.models}
    while all(life.log(key).log_end_offset == ends.get(key) for key in life.models):
        life.act()
    mistaken = msgspec.structs.replace(staged, sizes={})
    life.back_up(Repository(Storage(), str(tmp_path / "backups")), mistaken, tmp_path / "restored")
    with pytest.raises(AssertionError):
        check_restored(tmp_path / "restored", expected)
    life.directory.close(clean=False)
