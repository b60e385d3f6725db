"""A random sequence of requests: drawn from a seed, carried out by one endpoint at a time, and written as
text.

A step is a name and plain arguments, which say nothing about answers: "the second member commits at an epoch
one below its own". So the same steps make the same sequence at both endpoints, as long as their answers
agree, and any step can be left out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, ClassVar, NamedTuple

from tests.compat.differential.peer import Peer, Refused, Topic, Transcript, Unsettled

Arguments = tuple[Any, ...]
Draw = Callable[[Random], Arguments]


class Step(NamedTuple):
    """One step: the method of the world that carries it out, and its arguments."""

    name: str
    arguments: Arguments

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(repr, self.arguments))})"


class World(ABC):
    """The state of one sequence at one endpoint. Each step is a method; the fields hold what the answers
    reported.
    """

    family: ClassVar[str]
    table: ClassVar[Mapping[str, tuple[int, Draw]]]
    """The steps by name: the weight with which each is drawn, and its arguments."""
    length: ClassVar[int] = 30

    def __init__(self, peer: Peer, name: str, topics: Sequence[Topic]) -> None:
        self.peer = peer
        self.name = name
        """The prefix of everything that belongs to this sequence alone."""
        self.topics = topics

    @abstractmethod
    def finish(self) -> None:
        """Record the state that the sequence leaves."""

    @classmethod
    def draw(cls, random: Random) -> list[Step]:
        """Draw the steps of a sequence."""
        names = list(cls.table)
        weights = [weight for weight, _ in cls.table.values()]
        chosen = random.choices(names, weights, k=random.randint(cls.length // 3, cls.length))
        return [Step(name, cls.table[name][1](random)) for name in chosen]


def carry_out(
    world: type[World], steps: Sequence[Step], bootstrap: str, name: str, topics: Sequence[Topic]
) -> Transcript:
    """Carry out the steps at one endpoint; return what was asked and answered."""
    peer = Peer(bootstrap, f"{name}-")
    peer.transcript.topic_names.update({topic.topic_id: topic.name for topic in topics})
    try:
        run = world(peer, name, topics)
        for step in steps:
            getattr(run, step.name)(*step.arguments)
        run.finish()
    except (Refused, Unsettled) as error:
        peer.stopped(str(error))
    finally:
        peer.close()
    return peer.transcript


def one_of(*choices: Any) -> Callable[[Random], Any]:
    """Return a function that draws one of the values `choices`."""
    return lambda random: random.choice(choices)


def drawn(*parts: Callable[[Random], Any]) -> Draw:
    """Return a function that draws the arguments of one step: one value from each of the functions `parts`."""
    return lambda random: tuple(part(random) for part in parts)
