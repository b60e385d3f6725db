"""The states of `manifest_protocol`, and the search through them."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import NamedTuple


class Stage(enum.IntEnum):
    """The step that a session carries out."""

    SEAL = enum.auto()
    """The session seals the earlier sessions and reads the manifest."""
    READ = enum.auto()
    """The session reads the write-ahead logs."""
    WRITE = enum.auto()
    END = enum.auto()
    """The session has noticed that another session sealed its log."""
    FAILED = enum.auto()
    """An invariant was violated when the session started."""


class Part(NamedTuple):
    """An object with records; a record is the number of the session that appended it."""

    name: tuple[int, int]
    records: tuple[int, ...]


class Manifest(NamedTuple):
    """A manifest; its session and generation are its etag, too."""

    session: int
    generation: int
    file: tuple[int, ...]
    """The content of the side file: the records that its state includes."""
    parts: tuple[Part, ...]


class Call(NamedTuple):
    """A conditional replacement of the manifest."""

    expected: tuple[int, int]
    new: Manifest


class Session(NamedTuple):
    """One session of a gateway, from its registration on."""

    stage: Stage = Stage.SEAL
    log: tuple[int, ...] = ()
    """The records in the local files."""
    confirmed_end: int = 0
    file: tuple[int, ...] = ()
    """The side file as the start got it."""
    manifest: Manifest | None = None
    """The newest manifest that the session knows to be, or to have been, in the bucket."""
    has_manifest: bool = False
    is_counted: bool = False
    """Whether the barrier was passed after the manifest was replaced."""
    plan: Manifest | None = None
    """The manifest of the upload under way."""
    call: Call | None = None
    """The replacement of the manifest that failed, or whose outcome the session does not know."""
    uploads: int = 0
    garbage: frozenset[tuple[int, int]] = frozenset()
    """The parts that the manifest does not name any more."""
    listed: frozenset[tuple[int, int]] | None = None
    """The orphans of a sweep under way."""
    sealed: int = 0
    """The earlier sessions that the start has sealed."""
    positions: tuple[int, ...] = ()
    """The next object to read of each earlier session."""
    reading: int = 0
    """The session whose objects are read."""
    sentence: str = ""
    """The invariant that the session violated, in a sentence; empty without a violation."""

    def failed(self, sentence: str) -> Session:
        """Return the session after it has violated an invariant; `sentence` says which one."""
        return self._replace(stage=Stage.FAILED, sentence=sentence)


class State(NamedTuple):
    """The bucket and all sessions at one moment."""

    wals: tuple[tuple[int | None, ...], ...]
    """For each session the offsets of the records in its objects; None where an object was deleted."""
    sealed: tuple[bool, ...]
    boundaries: tuple[int, ...]
    confirmed: tuple[int, ...]
    """All confirmed records, in order."""
    manifest: Manifest | None
    parts: frozenset[tuple[int, int]]
    doomed: frozenset[tuple[int, int]]
    """The parts that somebody has decided to delete."""
    late: frozenset[Call]
    """The replacements of the manifest that are under way."""
    sessions: tuple[Session, ...]

    def with_session(self, number: int, session: Session) -> State:
        """Return the state with another state of one session."""
        return self._replace(sessions=(*self.sessions[:number], session, *self.sessions[number + 1 :]))


class Breach(NamedTuple):
    """A state that violates an invariant, and the states that led to it."""

    sentence: str
    path: list[State]


class Explored(NamedTuple):
    """The result of a search through all states of a protocol."""

    states: int
    breach: Breach | None


def explored(
    first: State,
    following: Callable[[State], Iterator[State]],
    breach: Callable[[State], str | None],
    most_states: int,
) -> Explored:
    """Visit all states that follow from the first one, or so many, until something does not hold."""
    came_from: dict[State, State | None] = {first: None}
    to_visit = [first]
    while to_visit and len(came_from) < most_states:
        state = to_visit.pop()
        sentence = breach(state)
        if sentence is not None:
            path = [state]
            while (before := came_from[path[-1]]) is not None:
                path.append(before)
            return Explored(len(came_from), Breach(sentence, path[::-1]))
        for after in following(state):
            if after not in came_from:
                came_from[after] = state
                to_visit.append(after)
    return Explored(len(came_from), None)
