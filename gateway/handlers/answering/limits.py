"""The limits of requests: answers to what is named several times, the time of administrative work, and the
size of an offset's metadata.

Apache Kafka answers a thing as often as the request names it. A request of a few bytes could name a large
thing many times and get gigabytes. No ordinary client does that, so a request that names many things gets
each answer once.

When the time of an administrative request is up, work in progress continues, and `seqgate tasks` shows it;
work not yet begun is dropped. The answer is REQUEST_TIMED_OUT in both cases, as in Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar

from seqgate.gateway.handlers.answering.api import RequestContext
from seqgate.gateway.protocol.kafka_4_4 import API_NAMES
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.runtime.services import NodeServices

REPEATING_MAX_NAMED: Final = 100
"""Things that a request may name and still get an answer for each repetition. A longer request gets each
answer once.
"""

K = TypeVar("K", bound=Hashable)
Name = TypeVar("Name", bound=Hashable)
T = TypeVar("T")
R = TypeVar("R")


def to_answer(
    named: Sequence[Name], name: Callable[[Name], Hashable] = lambda thing: thing
) -> Sequence[Name]:
    """Return the things to answer in the request's order: all, as in Kafka, or the first of each name if
    there are more than `REPEATING_MAX_NAMED`. `name` returns the name by which two things are the same.
    """
    if len(named) <= REPEATING_MAX_NAMED:
        return named
    first: dict[Hashable, Name] = {}
    for thing in named:
        first.setdefault(name(thing), thing)
    return tuple(first.values())


def places_to_answer(topics: Sequence[tuple[K, Sequence[int]]]) -> Iterator[tuple[K, Sequence[int]]]:
    """Yield (topic, indexes) of the partitions to answer, by the rule of `to_answer`; each has indexes."""
    if sum(len(indexes) for _, indexes in topics) <= REPEATING_MAX_NAMED:
        yield from topics
        return
    answered: dict[K, set[int]] = {}
    for topic, indexes in topics:
        before = answered.setdefault(topic, set())
        yield topic, tuple(index for index in dict.fromkeys(indexes) if index not in before)
        before.update(indexes)


async def answer_each(named: Sequence[Name], answer: Callable[[Name], R]) -> tuple[R, ...]:
    """Return the answers to what `to_answer` chooses; each is computed once, in slices, and shared."""
    asked = to_answer(named)
    answers = {thing: answer(thing) async for thing in in_slices(dict.fromkeys(asked))}
    return tuple([answers[thing] for thing in asked])


class TimeLimit:
    """The time limit of one request, which begins now."""

    def __init__(self, context: RequestContext[Any], asked: timedelta | None = None) -> None:
        """Allow the time that the request asks for, but no more than the gateway does."""
        self._node = node = context.node
        limit = timedelta(milliseconds=node.config.int("seqgate.admin.timeout.ms"))
        if asked is not None:
            limit = min(limit, asked)
        self._name = API_NAMES[context.api_key].replace("_", " ")
        self._deadline_s = node.loop.time() + limit.total_seconds()

    @property
    def left_s(self) -> float:
        """The seconds that are left; 0 or less when the time is up."""
        return self._deadline_s - self._node.loop.time()

    async def run(
        self, work: Coroutine[Any, Any, T], of: str = "", *, late: Callable[[T], object] | None = None
    ) -> T:
        """Wait for the work while there is time; `of` names its subject for `seqgate tasks`. Raises
        TimeoutError. `late` is called with the result of work that ends well after its time, or after the
        client has disconnected.
        """
        left_s = self.left_s
        if left_s <= 0:
            work.close()
            raise TimeoutError
        tasks = self._node.tasks
        task = tasks.begin(f"{self._name} {of}".rstrip(), is_brief=True)
        doing = tasks.start(task, work)
        try:
            return await asyncio.wait_for(asyncio.shield(doing), left_s)
        except (TimeoutError, asyncio.CancelledError):
            if late is not None:
                doing.add_done_callback(partial(_tell, late))
            raise

    async def each(self, things: Iterable[T]) -> AsyncIterator[T]:
        """Yield each thing, with other requests in between. Raises TimeoutError when the time is up."""
        async for thing in in_slices(things):
            if self.left_s <= 0:
                raise TimeoutError
            yield thing


def _tell(late: Callable[[T], object], doing: asyncio.Task[T]) -> None:
    if not doing.cancelled() and doing.exception() is None:
        late(doing.result())


def metadata_fits(node: NodeServices, metadata: str) -> bool:
    """Return whether an offset's metadata fits. Kafka counts UTF-16 units, whatever the setting is called."""
    units = len(metadata.encode("utf-16-le", "surrogatepass")) // 2
    return units <= node.config.int("offset.metadata.max.bytes")
