"""Requests that name the same thing several times.

Apache Kafka answers it as often as it is named. A few bytes that name what has a large answer over and over would so
get gigabytes; no client asks like that, so requests that name very much get each answer once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final, TypeVar

from gateway.runtime.loop.slices import in_slices

REPEATING_MAX_NAMED: Final = 100
"""How many things a request may name for those that it names again to be answered again."""

K = TypeVar("K", bound=Hashable)
T = TypeVar("T", bound=Hashable)
R = TypeVar("R")


def to_answer(named: Sequence[T], name: Callable[[T], Hashable] = lambda thing: thing) -> Sequence[T]:
    """What is answered of what a request names, in its order: everything, as in Apache Kafka.

    Of more than `REPEATING_MAX_NAMED` things it is the first of each name. `name` tells which things ask for the same,
    also when they are not equal.
    """
    if len(named) <= REPEATING_MAX_NAMED:
        return named
    first: dict[Hashable, T] = {}
    for thing in named:
        first.setdefault(name(thing), thing)
    return tuple(first.values())


def places_to_answer(topics: Sequence[tuple[K, Sequence[int]]]) -> Iterator[tuple[K, Sequence[int]]]:
    """`to_answer` of partitions, which are named by (topic, indexes): every topic with those indexes that are answered."""
    if sum(len(indexes) for _, indexes in topics) <= REPEATING_MAX_NAMED:
        yield from topics
        return
    answered: dict[K, set[int]] = {}
    for topic, indexes in topics:
        before = answered.setdefault(topic, set())
        yield topic, tuple(index for index in dict.fromkeys(indexes) if index not in before)
        before.update(indexes)


async def answer_each(
    named: Sequence[T], answer: Callable[[T], R], name: Callable[[T], Hashable] = lambda thing: thing
) -> tuple[R, ...]:
    """The answers to what `to_answer` chooses. Each is worked out once, in slices; what is named again shares it."""
    asked = to_answer(named, name)
    answers = {thing: answer(thing) async for thing in in_slices(dict.fromkeys(asked))}
    return tuple([answers[thing] for thing in asked])
