"""Commands that ask several workers, of which some refuse, are being started again, or stay silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqgate.gateway.admin.every_worker import RESTART_S, Workers
from seqgate.gateway.admin.request import ControlError, Elsewhere, NoAnswer, NotRunning

PLACES = [Path("workers") / str(number) for number in (1, 2)]
GONE = NotRunning("nobody is there")
SILENT = NoAnswer("the gateway did not answer within 40 s")
OTHER = Elsewhere("t-0 is led by broker 2")
REFUSAL = ControlError("t-0 is not offline")


class Scene:
    """Workers with one answer after another; the last one stays. Time passes only in pauses."""

    def __init__(self, *answers: list[int | ControlError]) -> None:
        self.answers = dict(zip(PLACES, answers, strict=True))
        self.now_s = 0.0
        self.workers = Workers(PLACES, self.is_there, now_s=lambda: self.now_s, sleep=self.sleep)

    def sleep(self, pause_s: float) -> None:
        self.now_s += pause_s
        for answers in self.answers.values():
            if len(answers) > 1:
                answers.pop(0)

    def is_there(self, place: Path) -> bool:
        return not isinstance(self.answers[place][0], NotRunning)

    def ask_at(self, place: Path) -> int:
        answer = self.answers[place][0]
        if isinstance(answer, ControlError):
            raise answer
        return answer

    def first(self) -> int:
        return self.workers.first(self.ask_at)

    def all(self) -> tuple[list[int], list[str]]:
        return self.workers.all(self.ask_at)


def test_a_worker_that_is_being_started_again_is_waited_for() -> None:
    assert Scene([GONE, GONE, 1], [2]).first() == 1
    assert Scene([1], [GONE, GONE, 2]).all() == ([1, 2], [])


def test_nobody_is_waited_for_where_none_runs() -> None:
    scene = Scene([GONE], [GONE])
    for ask in (scene.first, scene.all):
        with pytest.raises(NotRunning):
            ask()
    assert scene.now_s == 0


def test_a_worker_that_stays_away_is_named() -> None:
    scene = Scene([1], [GONE])
    assert scene.all() == ([1], ["the worker on node 2 gave no answer: it is not running now"])
    assert scene.now_s == pytest.approx(RESTART_S, abs=0.1)
    assert Scene([GONE], [2]).first() == 2


def test_a_worker_that_does_not_answer_is_named() -> None:
    assert Scene([SILENT], [2]).all() == ([2], [f"the worker on node 1 gave no answer: {SILENT}"])


def test_what_may_have_been_done_is_not_asked_of_another_worker() -> None:
    with pytest.raises(NoAnswer, match=r"the worker on node 1 gave no answer: .* within 40 s"):
        Scene([SILENT], [2]).first()


def test_a_worker_refuses_what_another_one_knows() -> None:
    assert Scene([OTHER], [2]).first() == 2
    assert Scene([OTHER], [2]).all() == ([2], [])


def test_any_other_refusal_is_told() -> None:
    assert Scene([REFUSAL], [2]).all() == ([2], [f"the worker on node 1 gave no answer: {REFUSAL}"])


@pytest.mark.parametrize("answers", [([OTHER], [REFUSAL]), ([REFUSAL], [OTHER]), ([REFUSAL], [REFUSAL])])
def test_the_refusal_is_that_of_the_worker_that_knows(answers: tuple[list[ControlError], ...]) -> None:
    for ask in (Scene(*map(list, answers)).first, Scene(*map(list, answers)).all):  # type: ignore[arg-type]
        with pytest.raises(ControlError, match="t-0 is not offline"):
            ask()


def test_the_one_that_knows_is_away() -> None:
    with pytest.raises(NoAnswer, match=r"^the worker on node 2 gave no answer: it is not running now$"):
        Scene([OTHER], [GONE]).first()
    with pytest.raises(NoAnswer, match=r"^t-0 is not offline; the worker on node 2 gave no answer: it is"):
        Scene([REFUSAL], [GONE]).first()


def test_all_refuse_alike() -> None:
    with pytest.raises(Elsewhere, match="broker 2"):
        Scene([OTHER], [OTHER]).first()
