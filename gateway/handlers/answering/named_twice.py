"""Limits the answer to a request that names the same thing several times.

Apache Kafka answers a thing as often as the request names it. A request of a few bytes could name a large
thing many times and get gigabytes. No ordinary client does that, so a request that names many things gets
each answer once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final, TypeVar

from seqgate.gateway.runtime.loop.slices import in_slices

REPEATING_MAX_NAMED: Final = 100
"""Things that a request may name and still get an answer for each repetition.

A longer request gets each answer once.
"""

K = TypeVar("K", bound=Hashable)
T = TypeVar("T", bound=Hashable)
R = TypeVar("R")


def to_answer(named: Sequence[T], name: Callable[[T], Hashable] = lambda thing: thing) -> Sequence[T]:
    """Return the things to answer, in the request's order: all of them, as in Apache Kafka.

    From more than `REPEATING_MAX_NAMED` things only the first of each name is answered. `name` returns the
    name by which two things are the same, even if they are not equal.
    """
    if len(named) <= REPEATING_MAX_NAMED:
        return named
    first: dict[Hashable, T] = {}
    for thing in named:
        first.setdefault(name(thing), thing)
    return tuple(first.values())


def places_to_answer(topics: Sequence[tuple[K, Sequence[int]]]) -> Iterator[tuple[K, Sequence[int]]]:
    """Yield the partitions to answer, (topic, indexes), by the rule of `to_answer`.

    Every topic comes with some indexes.
    """
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
    """Return the answers to the things that `to_answer` chooses.

    Each answer is computed once, in slices, and shared.
    """
    asked = to_answer(named, name)
    answers = {thing: answer(thing) async for thing in in_slices(dict.fromkeys(asked))}
    return tuple([answers[thing] for thing in asked])
