"""The file of the console's history: it outlives the console, torn writes and failures, and is bounded."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqgate.gateway.admin.producers import ProducerRow
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
from seqgate.gateway.console.metrics.producer_events import KEPT_MS, ProducerEvents
from seqgate.gateway.console.metrics.producer_events import key_of as producer_key

BEGIN = 1_795_847_040_000
STEP = 5_000
LABELS = {"group": "g"}
LAGS = key_of(LAG, LABELS)


class Kept:
    """A history with its file, as a console has it."""

    def __init__(
        self, path: Path, most_bytes: int = module.MOST_BYTES, cluster_id: str | None = None
    ) -> None:
        self.history = History()
        self.producers = ProducerEvents()
        self.file = HistoryFile(path, self.history, self.producers, most_bytes)
        self.open(cluster_id)

    def open(self, cluster_id: str | None) -> None:
        self.file.open(cluster_id)

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
    kept.file._write_anew(BEGIN)  # what happens when the limit is reached
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
    first.file._write_anew(BEGIN)
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


def test_a_clock_that_is_set_back_delays_no_new_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = filled(path)
    with monkeypatch.context() as patched:
        patched.setattr(module, "_write", _full)
        kept.add(BEGIN + DAY_MS, {LAGS: 5.0})
    assert kept.file.trouble is not None
    kept.add(BEGIN + MINUTE_MS, {LAGS: 6.0})
    assert kept.file.trouble is None


def of_cluster(path: Path, cluster_id: str | None = None) -> Kept:
    return Kept(path, cluster_id=cluster_id)


def test_a_file_of_another_cluster_is_set_aside(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = of_cluster(path, "a")
    first.add(BEGIN, {LAGS: 1.0}, "t")
    first.file.close()
    again = of_cluster(path, "a")
    assert again.lags() == [1]
    again.file.close()
    assert not caplog.text
    other = of_cluster(path, "b")
    assert (other.lags(), other.history.last_write_ms("t")) == ([], None)
    assert "has the history of cluster a" in caplog.text
    other.add(BEGIN, {LAGS: 2.0})
    other.file.close()
    before = of_cluster(path.with_name(path.name + ".before"), "a")
    assert before.lags() == [1]
    assert of_cluster(path, "b").lags() == [2]


def test_a_cluster_that_answers_late_is_still_told_apart(path: Path) -> None:
    """Until then the console shows what the file has."""
    first = of_cluster(path)
    first.add(BEGIN, {LAGS: 1.0})
    first.file.belongs_to(None)
    first.file.belongs_to("a")
    first.file.belongs_to("a")
    first.add(BEGIN + STEP, {LAGS: 2.0})
    first.file.close()
    late = of_cluster(path)
    assert late.lags() == [1, 2]
    assert late.history.cluster_id == "a"
    late.file.belongs_to("b")
    assert late.lags() == []
    late.add(BEGIN + 2 * STEP, {LAGS: 3.0})
    late.file.close()
    assert of_cluster(path, "b").lags() == [3]


def test_the_cluster_is_known_after_the_file_was_written_anew(path: Path) -> None:
    kept = of_cluster(path, "a")
    kept.add(BEGIN, {LAGS: 1.0})
    kept.file._write_anew(BEGIN)
    kept.file.close()
    assert of_cluster(path, "b").lags() == []


def _full(*_: object) -> None:
    raise OSError("the disk is full")


# The strips of producers, which the file keeps beside the samples.

STRIP = producer_key("orders", 3, 7)


def row(sequence: int, producer_id: int = 7) -> ProducerRow:
    return ProducerRow("orders", 3, producer_id, 0, sequence, sequence, 0, -1, -1, 5, 1)


def written_strips(path: Path, most_bytes: int = module.MOST_BYTES) -> Kept:
    """Return the file of a console that has seen a producer write twice."""
    kept = Kept(path, most_bytes, "c")
    for number in range(3):
        kept.producers.see(BEGIN + number * STEP, [row(number * 4)], is_all=True)
        kept.add(BEGIN + number * STEP, {LAGS: 1.0})
    return kept


def strip(kept: Kept, key: str = STRIP) -> list[tuple[int, int | None]]:
    """Return the time and the records of each event of a producer."""
    return [(event.time_ms - BEGIN, event.records) for event in kept.producers.after(0, [key])[1][key]]


@pytest.mark.parametrize("is_anew", [False, True], ids=["appended", "written anew"])
def test_strips_come_back_with_the_time_in_which_nobody_watched(path: Path, is_anew: bool) -> None:
    kept = written_strips(path)
    if is_anew:
        kept.file._write_anew(BEGIN + 2 * STEP)
    kept.file.close()
    again = Kept(path, cluster_id="c")
    assert strip(again) == [(STEP, 4), (2 * STEP, 4)]
    assert again.producers.since_ms(STRIP) == BEGIN
    back = BEGIN + 12 * STEP
    again.producers.see(back, [row(20), row(1, 8)], is_all=True)
    again.add(back, {LAGS: 1.0})
    again.file.close()
    third = Kept(path, cluster_id="c")
    assert strip(third) == [(STEP, 4), (2 * STEP, 4), (12 * STEP, 12)], "what came meanwhile is not lost"
    assert strip(third, producer_key("orders", 3, 8)) == [(12 * STEP, None)], "it began meanwhile"
    assert third.producers.gaps == [(BEGIN + 2 * STEP, back)]
    third.producers.see(back + KEPT_MS + STEP, [row(90)], is_all=True)
    assert strip(third) == [], "after a long time a strip begins anew"


class Unopened(Kept):
    """A console that has not read its file yet."""

    def open(self, cluster_id: str | None) -> None:
        """Leave it to the test."""


def test_what_a_page_saw_before_the_file_was_read_stays(path: Path) -> None:
    written_strips(path).file.close()
    other = producer_key("orders", 3, 8)
    early = Unopened(path)
    for number in (3, 4):
        early.producers.see(BEGIN + number * STEP, [row(number * 4), row(number, 8)])
    early.file.open("c")
    early.producers.see(BEGIN + 5 * STEP, [row(20), row(9, 8)], is_all=True)
    assert strip(early) == [(STEP, 4), (2 * STEP, 4), (5 * STEP, 12)]
    assert strip(early, other) == [(4 * STEP, 1), (5 * STEP, 5)]
    early.add(BEGIN + 5 * STEP, {LAGS: 1.0})
    early.file.close()
    assert strip(Kept(path), other) == [(4 * STEP, 1), (5 * STEP, 5)]


def test_strips_of_another_cluster_are_not_shown(path: Path) -> None:
    written_strips(path).file.close()
    late = Kept(path)
    assert strip(late)
    late.file.belongs_to("d")
    assert strip(late) == []
    late.file.close()
    assert strip(Kept(path, cluster_id="e")) == []


def test_strips_stay_within_the_limit_of_the_file(path: Path) -> None:
    most = 60_000
    kept = Kept(path, most)
    for number in range(300):
        rows = [row(number, producer_id) for producer_id in range(10)]
        kept.producers.see(BEGIN + number * STEP, rows, is_all=True)
        kept.add(BEGIN + number * STEP, {LAGS: 1.0})
        assert path.stat().st_size <= most
    kept.file.close()
    assert strip(Kept(path, most))[-1] == (299 * STEP, 1)
