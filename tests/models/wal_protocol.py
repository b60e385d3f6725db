"""The protocol of one session's write-ahead log, as a machine whose states can all be visited.

A session creates objects 0, 1, 2 … by calls that arrive late, more than once or never, and whose answers get
lost; it may be paused for ever at any moment. It confirms objects by the rules of
`seqgate.gateway.cluster.wal.session_wal`, the very code that runs. It uploads what is confirmed elsewhere
(`uploaded`), moves the boundary, and deletes the objects below it. A taker ends the session as
`seqgate.gateway.cluster.wal.ended` does. What must hold in every state:

- what the session ever confirmed was read by the taker, or was uploaded when the taker looked at the uploads,
  after a valid seal;
- the session confirms nothing at or behind a valid seal;
- the session is fenced only if it has been sealed.

An answer that comes later needs no state of its own: the session can hear it at once and be slow to act.

    python -m tests.models.wal_protocol --objects 3 --window 3 --copies 2
    python -m tests.models.wal_protocol --objects 3 --takers 2      # about two minutes
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from typing import Final, NamedTuple

from seqgate.gateway.cluster.wal.session_wal import Confirmations, ObjectOutcome, ObjectStep

EMPTY, DATA, SEAL = range(3)
"""What a place of the log has in the store."""
UNSENT, CREATING, CREATE, LOOK, REST = range(5)
"""What the session does about an object: a call is under way, or which call comes next."""
_STEPS: Final = {ObjectStep.CREATE: CREATE, ObjectStep.LOOK: LOOK, ObjectStep.REST: REST}
NOWHERE: Final = -1


class Writer(NamedTuple):
    """The fields of `Confirmations`."""

    sent_end: int = 0
    confirmed_end: int = 0
    own: frozenset[int] = frozenset()
    is_fenced: bool = False


class Taker(NamedTuple):
    """A taker; `position` is NOWHERE before it has read the boundary."""

    position: int = NOWHERE
    read: frozenset[int] = frozenset()
    sealed: int = NOWHERE
    is_valid: bool = False
    uploads_seen: int = NOWHERE


class State(NamedTuple):
    """Everything at one moment. `late_boundary` is an old replacement of the boundary that is still under
    way.
    """

    store: tuple[int, ...]
    copies: tuple[int, ...]
    """Creates under way, per object."""
    steps: tuple[int, ...]
    writer: Writer
    confirmed: frozenset[int]
    uploaded: int
    boundary: int
    late_boundary: int
    takers: tuple[Taker, ...]


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """The size of the machine, and what of the protocol it keeps; each False is a mistake."""

    objects: int = 2
    window: int = 2
    copies: int = 1
    """Creates of one object that are under way at the same time, at most."""
    takers: int = 1
    collects: bool = True
    """Whether objects are ever deleted."""
    looks_at_the_boundary_after_the_seal: bool = True
    moves_the_boundary_before_it_deletes: bool = True
    replaces_the_boundary_conditionally: bool = True
    takers_move_the_boundary: bool = True
    keeps_seals: bool = True
    sees_uploads_after_the_seal: bool = True


class Breach(NamedTuple):
    """A state that violates an invariant, and the states that led to it."""

    sentence: str
    path: list[State]


class Explored(NamedTuple):
    """The result of a search through all states of a protocol."""

    states: int
    breach: Breach | None


class Machine:
    """All states of a protocol."""

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        self._after = cache(self._uncached_after)
        self._due = cache(self._uncached_due)
        self._confirm = cache(self._uncached_confirm)

    def explore(self, most_states: int = sys.maxsize) -> Explored:
        """Visit all states, or so many, until something does not hold."""
        first = self._first()
        came_from: dict[State, State | None] = {first: None}
        to_visit = [first]
        while to_visit and len(came_from) < most_states:
            state = to_visit.pop()
            sentence = self._breach(state)
            if sentence is not None:
                path = [state]
                while (before := came_from[path[-1]]) is not None:
                    path.append(before)
                return Explored(len(came_from), Breach(sentence, path[::-1]))
            for following in self._following(state):
                if following not in came_from:
                    came_from[following] = state
                    to_visit.append(following)
        return Explored(len(came_from), None)

    def _first(self) -> State:
        size = self._protocol.objects
        return State(
            store=(EMPTY,) * (size + 1),  # the last place is for a seal behind all objects
            copies=(0,) * size,
            steps=(UNSENT,) * size,
            writer=Writer(),
            confirmed=frozenset(),
            uploaded=0,
            boundary=0,
            late_boundary=NOWHERE,
            takers=(Taker(),) * self._protocol.takers,
        )

    def _breach(self, state: State) -> str | None:
        for taker in state.takers:
            if not taker.is_valid:
                continue
            behind = [seq for seq in state.confirmed if seq >= taker.sealed]
            if behind:
                return f"object {behind[0]} is confirmed, and {taker.sealed} is sealed"
            if taker.uploads_seen != NOWHERE:
                lost = state.confirmed - taker.read - set(range(taker.uploads_seen))
                if lost:
                    return f"object {min(lost)} is confirmed, and the taker has not got it"
        if len({taker.sealed for taker in state.takers if taker.is_valid}) > 1:
            return "two takers ended the session at different places"
        if state.writer.is_fenced and SEAL not in state.store:
            return "the session is fenced, and nobody has sealed it"
        return None

    def _following(self, state: State) -> Iterator[State]:
        if not state.writer.is_fenced:
            yield from self._session_acts(state)
            if self._protocol.collects:
                yield from self._session_collects(state)
        for seq, copies in enumerate(state.copies):
            if copies:
                yield from self._create_arrives(state, seq)
        if state.late_boundary != NOWHERE:
            yield state._replace(boundary=state.late_boundary, late_boundary=NOWHERE)
        for number, taker in enumerate(state.takers):
            for store, following in self._taker_acts(state, taker):
                takers = (*state.takers[:number], following, *state.takers[number + 1 :])
                yield state._replace(store=store, takers=takers)
            if taker.uploads_seen != NOWHERE and taker.is_valid and self._protocol.collects:
                yield from self._taker_collects(state, taker)

    # --- the session

    def _session_acts(self, state: State) -> Iterator[State]:
        writer, due = self._due(state.writer)
        if due:
            steps = (*state.steps[: due.start], *(CREATE for _ in due), *state.steps[due.stop :])
            yield state._replace(writer=writer, steps=steps)
        writer, confirmed = self._confirm(state.writer)
        if confirmed:
            yield state._replace(writer=writer, confirmed=state.confirmed.union(confirmed))
        for seq, step in enumerate(state.steps):
            if step == CREATE:
                yield self._creating(state, seq)
            elif step == CREATING:
                yield self._ended(state, seq, ObjectOutcome.UNKNOWN)
            elif step == LOOK:
                found = (ObjectOutcome.MISSING, ObjectOutcome.OURS, ObjectOutcome.SEALED)[state.store[seq]]
                yield self._ended(state, seq, found)

    def _creating(self, state: State, seq: int) -> State:
        """Send a create. Beyond `copies` under way it takes the place of one that never arrives."""
        copies = min(self._protocol.copies, state.copies[seq] + 1)
        return state._replace(
            copies=_changed(state.copies, seq, copies), steps=_changed(state.steps, seq, CREATING)
        )

    def _ended(self, state: State, seq: int, outcome: ObjectOutcome) -> State:
        writer, step = self._after(state.writer, seq, outcome)
        return state._replace(writer=writer, steps=_changed(state.steps, seq, step))

    def _create_arrives(self, state: State, seq: int) -> Iterator[State]:
        is_empty = state.store[seq] == EMPTY
        arrived = state._replace(copies=_changed(state.copies, seq, state.copies[seq] - 1))
        if is_empty:
            arrived = arrived._replace(store=_changed(state.store, seq, DATA))
        yield arrived  # the answer is lost, or nobody waits for it any more
        if state.steps[seq] == CREATING and not state.writer.is_fenced:
            yield self._ended(arrived, seq, ObjectOutcome.CREATED if is_empty else ObjectOutcome.TAKEN)

    def _session_collects(self, state: State) -> Iterator[State]:
        confirmed_end = state.writer.confirmed_end
        if state.uploaded < confirmed_end:
            yield state._replace(uploaded=confirmed_end)
        if state.boundary < state.uploaded:
            yield state._replace(boundary=state.uploaded)
            if not self._protocol.replaces_the_boundary_conditionally and state.late_boundary == NOWHERE:
                yield state._replace(boundary=state.uploaded, late_boundary=state.boundary)
        is_first = self._protocol.moves_the_boundary_before_it_deletes
        for seq in range(state.boundary if is_first else state.uploaded):
            if state.store[seq] == DATA:
                yield state._replace(store=_changed(state.store, seq, EMPTY))

    def _uncached_due(self, writer: Writer) -> tuple[Writer, range]:
        rules = self._rules(writer)
        due = rules.due()
        return _writer(rules), due

    def _uncached_confirm(self, writer: Writer) -> tuple[Writer, range]:
        rules = self._rules(writer)
        confirmed = rules.confirm()
        return _writer(rules), confirmed

    def _uncached_after(self, writer: Writer, seq: int, outcome: ObjectOutcome) -> tuple[Writer, int]:
        rules = self._rules(writer)
        step = rules.after(seq, outcome)
        return _writer(rules), _STEPS[step]

    def _rules(self, writer: Writer) -> Confirmations:
        rules = Confirmations(self._protocol.window)
        rules.next_seq = self._protocol.objects
        rules.sent_end, rules.confirmed_end, own, rules.is_fenced = writer
        rules._own = set(own)
        return rules

    # --- the taker

    def _taker_acts(self, state: State, taker: Taker) -> Iterator[tuple[tuple[int, ...], Taker]]:
        protocol = self._protocol
        store = state.store
        if taker.is_valid:
            if taker.uploads_seen == NOWHERE:
                yield store, taker._replace(uploads_seen=state.uploaded)
            return
        if not protocol.sees_uploads_after_the_seal and taker.uploads_seen == NOWHERE:
            yield store, taker._replace(uploads_seen=state.uploaded)
        if taker.sealed != NOWHERE:
            if protocol.looks_at_the_boundary_after_the_seal and state.boundary > taker.sealed:
                yield store, taker._replace(position=NOWHERE, sealed=NOWHERE)
            else:
                yield store, taker._replace(is_valid=True)
        elif taker.position == NOWHERE:
            yield store, taker._replace(position=state.boundary)
        else:
            yield self._taker_looks(store, taker)

    def _taker_collects(self, state: State, taker: Taker) -> Iterator[State]:
        """Upload what the taker has read, move the boundary to the seal, and delete what is below."""
        if state.uploaded < taker.sealed:
            yield state._replace(uploaded=taker.sealed)
            return
        if state.boundary < taker.sealed:
            yield state._replace(boundary=taker.sealed)
        may_delete = state.boundary if self._protocol.takers_move_the_boundary else taker.sealed
        for seq, found in enumerate(state.store):
            is_useless = found == DATA and (seq < may_delete or seq > taker.sealed)
            if is_useless or (found == SEAL and not self._protocol.keeps_seals):
                yield state._replace(store=_changed(state.store, seq, EMPTY))

    @staticmethod
    def _taker_looks(store: tuple[int, ...], taker: Taker) -> tuple[tuple[int, ...], Taker]:
        place = taker.position
        if store[place] == DATA:
            return store, taker._replace(position=place + 1, read=taker.read | {place})
        return _changed(store, place, SEAL), taker._replace(sealed=place)


def _writer(rules: Confirmations) -> Writer:
    return Writer(rules.sent_end, rules.confirmed_end, frozenset(rules._own), rules.is_fenced)


def _changed(values: tuple[int, ...], place: int, value: int) -> tuple[int, ...]:
    return (*values[:place], value, *values[place + 1 :])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.models.wal_protocol")
    for field in fields(Protocol):
        if field.type == "int":
            parser.add_argument(f"--{field.name}", type=int, default=field.default)
    began_s = time.monotonic()
    protocol = Protocol(**vars(parser.parse_args()))
    explored = Machine(protocol).explore()
    print(f"{explored.states} states in {time.monotonic() - began_s:.0f} s")
    if explored.breach is not None:
        print(explored.breach.sentence, *explored.breach.path, sep="\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
