"""Answers that the console keeps for a few seconds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from seqgate.gateway.admin.remote.client_security import ClientSecurity
from seqgate.gateway.console.asking import connections
from seqgate.gateway.console.asking.connections import MOST_ANSWERS, Cache

KEPT_S = 5.0
ANYBODY = ClientSecurity()
SOMEBODY = ClientSecurity(username="somebody")


class Cluster:
    """Counts questions. An answer takes `slow_s` seconds of its clock."""

    def __init__(self, slow_s: float = 1.0) -> None:
        self.now_s = 0.0
        self.asked = 0
        self.slow_s = slow_s

    def answer(self) -> int:
        self.asked += 1
        self.now_s += self.slow_s
        return self.asked


@pytest.fixture(autouse=True)
def fresh_answers() -> None:
    """These tests keep answers as a console does."""


def cached(cluster: Cluster) -> Callable[..., int]:
    answers: Cache[int] = Cache(KEPT_S, lambda: cluster.now_s)
    return lambda security=ANYBODY, key=0: answers.get(security, key, cluster.answer)


def test_an_answer_counts_until_its_time_is_over() -> None:
    cluster = Cluster()
    ask = cached(cluster)
    assert [ask(), ask()] == [1, 1]
    cluster.now_s += KEPT_S - 0.1
    assert ask() == 1
    cluster.now_s += 0.1
    assert ask() == 2


def test_a_quick_answer_counts_for_ten_times_the_time_that_it_took() -> None:
    cluster = Cluster(slow_s=0.01)
    ask = cached(cluster)
    assert ask() == 1
    cluster.now_s += 0.09
    assert ask() == 1
    cluster.now_s += 0.02
    assert ask() == 2


def test_each_login_and_each_question_has_its_own_answer() -> None:
    ask = cached(Cluster())
    assert [ask(ANYBODY, 0), ask(SOMEBODY, 0), ask(ANYBODY, 1), ask(ANYBODY, 0)] == [1, 2, 3, 1]


def test_nothing_counts_after_a_change() -> None:
    cluster = Cluster()
    answers: Cache[int] = Cache(KEPT_S, lambda: cluster.now_s)
    assert answers.get(ANYBODY, 0, cluster.answer) == 1
    answers.forget()
    assert answers.get(ANYBODY, 0, cluster.answer) == 2


def test_the_answer_that_was_used_longest_ago_makes_room() -> None:
    ask = cached(Cluster(slow_s=0.5))
    for key in range(MOST_ANSWERS):
        ask(key=key)
    assert ask(key=MOST_ANSWERS - 1) == MOST_ANSWERS
    ask(key=MOST_ANSWERS)
    assert ask(key=MOST_ANSWERS - 1) == MOST_ANSWERS
    assert ask(key=0) == MOST_ANSWERS + 2


def test_pages_of_the_other_tests_are_asked_for_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "TIMES_LONGER", 0)
    ask = cached(Cluster())
    assert [ask(), ask()] == [1, 2]
