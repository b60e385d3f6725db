"""Trouble that lasts is reported once, and once more when it is over."""

from __future__ import annotations

import pytest

from seqgate.gateway.admin.remote.waiting import Deadline, Watch

HERE = "127.0.0.1:9092"
LOST = f"lost {HERE} (connection refused)"


class Told:
    """A watch with a clock that the test turns, and what the watch has reported."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.lines: list[str] = []
        self.watch = Watch(self.lines.append, lambda: self.now_s)

    def after(self, seconds: float) -> list[str]:
        """Return what is reported within so many seconds."""
        self.now_s += seconds
        self.watch.look()
        reported, self.lines[:] = list(self.lines), []
        return reported


@pytest.fixture
def told() -> Told:
    return Told()


def test_what_is_over_within_a_second_is_not_reported(told: Told) -> None:
    told.watch.begins("connection", HERE, LOST)
    assert told.after(0.9) == []
    told.watch.ends("connection", HERE)
    assert told.after(5) == []
    assert told.watch.trouble is None


def test_what_lasts_is_reported_once_with_its_newest_reason_and_once_when_it_is_over(told: Told) -> None:
    told.watch.begins("connection", HERE, "lost it")
    assert told.after(0.9) == []
    told.watch.begins("connection", HERE, LOST)
    assert told.after(0.2) == [f"{LOST}; still trying"]
    told.watch.begins("connection", HERE, LOST)
    assert told.after(60) == []
    assert (told.watch.trouble, told.watch.lasts_s) == (LOST, pytest.approx(61.1))
    told.watch.ends("connection", HERE)
    assert told.after(0) == [f"{HERE} works again"]
    assert told.watch.lasts_s == 0


def test_one_reason_of_many_partitions_is_one_line(told: Told) -> None:
    for partition in range(12):
        told.watch.begins(f"orders-{partition}", HERE, "the disk is full")
    assert told.after(2) == ["the disk is full; still trying"]
    for partition in range(11):
        told.watch.ends(f"orders-{partition}", HERE)
    assert told.after(2) == []
    told.watch.ends("orders-11", HERE)
    assert told.after(0) == [f"{HERE} works again"]


def test_a_request_without_an_answer_is_reported_until_another_has_one(told: Told) -> None:
    first = told.watch.asks(HERE)
    assert told.after(1.4) == []
    assert told.after(0.2) == [f"{HERE} does not answer; still trying"]
    told.watch.answered(first, well=False)
    assert told.after(5) == []
    with told.watch.asking(HERE):
        pass
    assert told.after(0) == [f"{HERE} works again"]


def test_the_time_of_a_command_runs_over_all_unanswered_requests() -> None:
    now_s = 0.0
    deadline = Deadline(6, lambda: now_s)
    assert deadline.left_s(5) == 5
    now_s = 5
    assert deadline.left_s(5) == 1
    now_s = 7
    assert deadline.left_s(5) == 0
    assert deadline.is_over
    deadline.answered()
    assert not deadline.is_over
    assert (deadline.left_s(30), Deadline(None).left_s(30)) == (6, 30)
