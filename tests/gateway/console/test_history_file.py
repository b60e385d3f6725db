"""The file of the console's history: it outlives the console, torn writes and failures, and is bounded."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqgate.gateway.console.metrics import history as module
from seqgate.gateway.console.metrics.history import (
    DAY_MS,
    HOUR_MS,
    LAG,
    MINUTE_MS,
    QUARTER_MS,
    RETRY_MS,
    TOPIC_RECORDS,
    History,
    HistoryFile,
    Key,
    key_of,
)

BEGIN = 1_795_847_040_000
STEP = 5_000
LABELS = {"group": "g"}
LAGS = key_of(LAG, LABELS)


class Kept:
    """A history with its file, as a console has it."""

    def __init__(self, path: Path, most_bytes: int = module.MOST_BYTES) -> None:
        self.history = History()
        self.file = HistoryFile(path, self.history, most_bytes)
        self.file.open()

    def add(self, time_ms: int, values: dict[Key, float | None], *written: str) -> None:
        self.history.add(time_ms, values)
        for topic in written:
            self.history.wrote(topic, time_ms)
        self.file.append(time_ms, values, dict.fromkeys(written, time_ms))

    def lags(self, range_ms: int = QUARTER_MS) -> list[float | None]:
        return self.history.series(LAG, LABELS, range_ms).values


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "history"


def filled(path: Path, count: int = 4) -> Kept:
    kept = Kept(path)
    for number in range(count):
        kept.add(
            BEGIN + number * STEP, {LAGS: float(number), key_of(TOPIC_RECORDS, {"topic": "t"}): 1.5}, "t"
        )
    return kept


def test_a_console_that_was_killed_finds_its_history_again(path: Path) -> None:
    before = filled(path)
    before.file.close()
    after = Kept(path)
    assert after.lags() == [0, 1, 2, 3]
    assert after.history.last_write_ms("t") == BEGIN + 3 * STEP
    assert path.stat().st_mode & 0o777 == 0o600, "names of topics and groups are not for everybody"
    after.add(BEGIN + 4 * STEP, {LAGS: 4.0, key_of(LAG, {"group": "new"}): 9.0})
    after.file.close()
    assert Kept(path).lags() == [0, 1, 2, 3, 4]


def test_a_torn_or_damaged_end_is_cut_off(path: Path) -> None:
    filled(path).file.close()
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        kept = Kept(path)
        values = kept.lags()
        assert values == [0, 1, 2, 3][: len(values)]
        kept.add(BEGIN + HOUR_MS, {LAGS: 7.0})
        kept.file.close()
        if kept.file.trouble is None:
            again = Kept(path)
            assert again.lags(2 * HOUR_MS)[-1] == 7, cut
            again.file.close()
    path.write_bytes(whole[:-3] + b"xxx")
    damaged = Kept(path)
    assert damaged.lags() == [0, 1, 2]
    assert path.stat().st_size < len(whole)


def test_the_file_never_passes_its_limit_and_keeps_the_newest(path: Path) -> None:
    most, keys = 60_000, [key_of(LAG, {"group": f"g{number}"}) for number in range(20)]
    kept = Kept(path, most)
    sizes = set()
    for number in range(800):
        kept.add(BEGIN + number * STEP, {LAGS: float(number), **dict.fromkeys(keys, 1.0)})
        sizes.add(path.stat().st_size)
    assert max(sizes) <= most
    expected = kept.lags(), kept.lags(DAY_MS)
    kept.file.close()
    again = Kept(path, most)
    restored = again.lags(), again.lags(DAY_MS)
    for found, wanted in zip(restored, expected, strict=True):
        assert found
        assert found == wanted[-len(found) :]


def test_a_whole_day_comes_back_as_it_was(path: Path) -> None:
    kept = Kept(path, 400_000)
    for number in range(1500):
        kept.add(BEGIN + number * MINUTE_MS, {LAGS: float(number)})
    assert path.stat().st_size <= 400_000
    kept.file._write_anew()  # what happens when the limit is reached
    kept.file.close()
    again = Kept(path)
    assert again.history.series(LAG, LABELS, DAY_MS) == kept.history.series(LAG, LABELS, DAY_MS)
    assert again.lags() == kept.lags()


def test_one_console_uses_a_file_at_a_time(path: Path) -> None:
    first = filled(path)
    second = Kept(path)
    assert second.file.trouble is not None
    assert "another console uses it" in second.file.trouble
    second.add(BEGIN + MINUTE_MS, {LAGS: 9.0})
    second.add(BEGIN + MINUTE_MS + RETRY_MS, {LAGS: 9.0})
    assert second.lags() == [9, None, 9], "it goes on in memory"
    first.file._write_anew()
    third = Kept(path)
    assert third.file.trouble is not None, "the file that was written anew is locked, too"
    first.file.close()
    assert Kept(path).lags() == [0, 1, 2, 3]


def test_a_file_of_somebody_else_stays(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"a letter to a friend")
    kept = Kept(path)
    for number in range(3):
        kept.add(BEGIN + number * RETRY_MS, {LAGS: 1.0})
    assert kept.file.trouble is not None
    assert "no history of a console" in kept.file.trouble
    assert path.read_bytes() == b"a letter to a friend"


def test_after_a_failure_the_file_is_written_anew(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = filled(path)
    with monkeypatch.context() as patched:
        patched.setattr(module, "_write", _full)
        kept.add(BEGIN + MINUTE_MS, {LAGS: 5.0})
        assert kept.file.trouble is not None
        assert "the disk is full" in kept.file.trouble
        kept.add(BEGIN + MINUTE_MS + RETRY_MS, {LAGS: 6.0})
    kept.add(BEGIN + MINUTE_MS + RETRY_MS + STEP, {LAGS: 7.0})
    assert kept.file.trouble is not None
    kept.add(BEGIN + MINUTE_MS + 2 * RETRY_MS, {LAGS: 8.0})
    assert kept.file.trouble is None
    expected = kept.lags()
    kept.file.close()
    assert Kept(path).lags() == expected
    assert expected[-1] == 8


def _full(*_: object) -> None:
    raise OSError("the disk is full")
