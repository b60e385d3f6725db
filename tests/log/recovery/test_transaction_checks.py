"""A flipped bit turns an index of aborted transactions into another valid one; a comparison with the log
detects the change.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from seqgate.log import PartitionLog
from seqgate.log.recovery import transaction_checks
from seqgate.log.recovery.transaction_checks import not_borne_out
from seqgate.log.segments.transaction_index import ENTRY
from tests.log.state.test_transactions import NOW_MS, ROOMY, end, send
from tests.log.support import batch, open_log

FIELDS = ("version", "producer_id", "first_offset", "last_offset", "last_stable_offset")


def written(directory: Path) -> PartitionLog:
    """Write offsets 0 to 10: producer 7 aborts [0, 5], 8 aborts [3, 7], 7 commits [8, 9]; the record at 2 has
    no producer.
    """
    log = open_log(directory, ROOMY)
    send(log, 7, 2)
    log.append(batch(1), now_ms=NOW_MS)
    send(log, 8, 2)
    end(log, 7)
    log.roll(NOW_MS)
    send(log, 8)
    end(log, 8)
    send(log, 7)
    end(log, 7, commit=True)
    log.roll(NOW_MS)
    log.append(batch(1), now_ms=NOW_MS)
    log.close(clean=True)
    return log


def change(path: Path, field: str, value: int) -> None:
    entry = list(ENTRY.unpack(path.read_bytes()))
    assert entry[FIELDS.index(field)] != value
    entry[FIELDS.index(field)] = value
    path.write_bytes(ENTRY.pack(*entry))


@pytest.mark.parametrize(
    ("base_offset", "field", "value"),
    [
        (0, "producer_id", 8),
        (0, "first_offset", 1),
        (0, "first_offset", 2),
        (0, "first_offset", 3),
        (0, "last_stable_offset", 6),
        (6, "producer_id", 7),
        (6, "first_offset", 4),
        (6, "first_offset", 5),
        (6, "last_offset", 6),
        (6, "last_offset", 9),
        (6, "last_offset", 8),
    ],
)
def test_what_the_log_does_not_bear_out_is_made_anew(
    tmp_path: Path, base_offset: int, field: str, value: int
) -> None:
    before = written(tmp_path / "p")
    path = tmp_path / "p" / f"{base_offset:020d}.txnindex"
    sound = path.read_bytes()
    change(path, field, value)
    log = open_log(tmp_path / "p", ROOMY, recovery_point=11)
    assert path.read_bytes() == sound
    assert log.segments.aborted_between(0, 11) == [(7, 0), (8, 3)]
    assert before.log_end_offset == log.log_end_offset == 11


def test_what_is_true_stays_as_it_is(tmp_path: Path) -> None:
    written(tmp_path / "p")
    assert not_borne_out(open_log(tmp_path / "p", ROOMY, recovery_point=11).segments.segments) == set()


def test_damage_in_the_log_speaks_against_no_entry(tmp_path: Path) -> None:
    """The index can't be rebuilt from a damaged log."""
    written(tmp_path / "p")
    path = tmp_path / "p" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[48] ^= 1  # a bit in the producer id of the first batch
    path.write_bytes(content)
    log = open_log(tmp_path / "p", ROOMY, recovery_point=11)
    assert log.segments.aborted_between(0, 11) == [(7, 0), (8, 3)]


def test_what_retention_took_speaks_against_no_entry(tmp_path: Path) -> None:
    written(tmp_path / "p")
    for path in (tmp_path / "p").glob(f"{0:020d}.*"):
        path.unlink()
    log = open_log(tmp_path / "p", ROOMY, recovery_point=11)
    assert log.segments.aborted_between(6, 11) == [(8, 3)]


def test_no_more_than_the_newest_are_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "p")
    monkeypatch.setattr(transaction_checks, "MOST_LOOKED_UP", 1)
    change(tmp_path / "p" / f"{0:020d}.txnindex", "first_offset", 1)
    log = open_log(tmp_path / "p", ROOMY, recovery_point=11)
    assert log.segments.aborted_between(0, 11) == [(7, 1), (8, 3)]
