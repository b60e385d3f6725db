"""A request that names a thing several times gets as many answers, as in Kafka, unless it names very many
things.
"""

from __future__ import annotations

from seqgate.gateway.handlers.answering.limits import (
    REPEATING_MAX_NAMED,
    answer_each,
    places_to_answer,
    to_answer,
)

MANY = REPEATING_MAX_NAMED + 1


def test_a_short_request_gets_an_answer_for_each_mention_of_a_name() -> None:
    named = ("b", "a") * (REPEATING_MAX_NAMED // 2)
    assert to_answer(named) == named


def test_a_long_request_gets_one_answer_for_each_name() -> None:
    named = [*((number % 2, number) for number in range(MANY)), (7, 7)]
    assert to_answer(named, lambda pair: pair[0]) == ((0, 0), (1, 1), (7, 7))


async def test_the_answer_of_a_repeated_name_is_computed_once() -> None:
    worked_out: list[str] = []

    def answer(name: str) -> list[str]:
        worked_out.append(name)
        return [name]

    answers = await answer_each(("b", "a", "b"), answer)
    assert answers == (["b"], ["a"], ["b"])
    assert answers[0] is answers[2]
    assert worked_out == ["b", "a"]


async def test_a_long_request_gets_each_answer_once() -> None:
    assert await answer_each(("b", "a") * MANY, str.upper) == ("B", "A")


def test_a_short_request_gets_an_answer_for_each_mention_of_a_partition() -> None:
    topics = [("t", (0, 1, 0)), ("u", ()), ("t", (1,))]
    assert list(places_to_answer(topics)) == topics


def test_a_long_request_gets_one_answer_for_each_partition_of_repeated_topics() -> None:
    topics = [("t", (0, 1, 0)), ("t", (1, 2)), ("u", (2,) * MANY), *[("t", (0,))] * MANY]
    assert list(places_to_answer(topics)) == [("t", (0, 1)), ("t", (2,)), ("u", (2,)), *[("t", ())] * MANY]
