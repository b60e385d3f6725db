"""The protocol by which gateways take one partition over from each other, as a machine whose states can all
be visited.

A leader appends records, each confirmed as one object of its session's write-ahead log (WAL), and replaces
the manifest by conditional calls that may arrive late or whose answers may be lost. A takeover seals its
session; a planned move uploads everything first. In both cases the metadata names the next leader, in the
next leader epoch, which adopts the partition: it reads the boundaries, the manifest, and the objects of
sealed sessions one by one, while others go on. A collector reads the manifest, and later moves the boundary
of a sealed log and deletes. A leader collects its own log. What must hold in every state:

- a leader that has adopted the partition has all confirmed records, and the newest side file that was
  confirmed;
- no adoption takes a log for damaged.

Each object has a row for a record and one for the side file, whose content is the number of records. `Rules`
name what makes this hold; with one of them broken the machine gets into a state that violates an invariant.
`tests.models.manifest_protocol` has the rules about parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

Etag = tuple[int, int, int]
NO_MANIFEST: Etag = (-1, -1, -1)


@dataclass(frozen=True)
class Rules:
    """The size of the model, and the rules."""

    sessions: int = 3
    records: int = 2
    moves: int = 2
    uploads: int = 1
    """The manifests that a session may store, besides those of planned moves."""
    reads_the_manifest_after_the_seal: bool = True
    reads_boundaries_before_the_manifest: bool = True
    reads_again_when_objects_were_collected: bool = True
    collects_only_what_a_manifest_has: bool = True
    replaces_conditionally: bool = True
    never_replaces_a_later_epoch: bool = True
    uploads_everything_before_a_move: bool = True
    orders_side_files_by_leader_epoch: bool = True


class Row(NamedTuple):
    """A WAL object: the offset of its record, and the leader epoch."""

    offset: int
    leader_epoch: int


class Manifest(NamedTuple):
    leader_epoch: int
    session: int
    generation: int
    end: int
    seq: int

    @property
    def etag(self) -> Etag:
        return self[:3]


class Call(NamedTuple):
    """A conditional replacement."""

    expected: Etag
    new: Manifest


class Session(NamedTuple):
    serves: int = -1
    """The leader epoch in which the session serves the partition; -1 if it does not."""
    end: int = 0
    """The records in its log."""
    known: Manifest | None = None
    call: Call | None = None
    """The replacement under way, of which the session does not know the outcome."""
    uploads: int = 0
    generation: int = 0
    adopting: int = -1
    """The leader epoch for which the session adopts the partition."""
    boundaries: tuple[int, ...] | None = None
    manifest: Manifest | None = None
    has_manifest: bool = False
    to_read: tuple[int, ...] | None = None
    """The sealed sessions whose objects are not read yet."""
    position: int = 0
    found: frozenset[int] = frozenset()
    file: tuple[tuple[int, int, int], int] = ((-1, -1, -1), 0)
    """The place of the newest side file, and its content."""
    moving_to: int = -1
    breach: str = ""


class State(NamedTuple):
    wals: tuple[tuple[Row | None, ...], ...]
    sealed: tuple[bool, ...]
    boundaries: tuple[int, ...]
    manifest: Manifest | None
    late: frozenset[Call]
    leader: int
    leader_epoch: int
    confirmed: int
    judged: tuple[int, int] | None
    """The session and the seq up to which the collector has found its log covered."""
    sessions: tuple[Session, ...]

    def having(self, number: int, session: Session) -> State:
        return self._replace(sessions=(*self.sessions[:number], session, *self.sessions[number + 1 :]))


class Machine:
    """All states of the protocol."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def explore(self, most_states: int = 3_000_000) -> tuple[int, str | None]:
        """Return the number of states, and a sentence about the first state that violates an invariant."""
        count = self.rules.sessions
        first = State(
            ((),) * count,
            (False,) * count,
            (0,) * count,
            None,
            frozenset(),
            0,
            0,
            0,
            None,
            (Session(serves=0), *(Session() for _ in range(count - 1))),
        )
        seen, to_visit = {first}, [first]
        while to_visit and len(seen) < most_states:
            state = to_visit.pop()
            for session in state.sessions:
                if session.breach:
                    return len(seen), session.breach
            for after in self._following(state):
                if after not in seen:
                    seen.add(after)
                    to_visit.append(after)
        return len(seen), None

    def _following(self, state: State) -> Iterator[State]:
        yield from self._bucket(state)
        yield from self._metadata(state)
        yield from self._collector(state)
        for number, session in enumerate(state.sessions):
            if session.adopting >= 0:
                yield from self._adopts(state, number, session)
            elif session.serves >= 0:
                yield from self._serves(state, number, session)
            elif not self.rules.reads_the_manifest_after_the_seal and not session.has_manifest:
                yield state.having(number, session._replace(manifest=state.manifest, has_manifest=True))

    # --- the bucket and the metadata

    def _bucket(self, state: State) -> Iterator[State]:
        for call in state.late:
            rest = state._replace(late=state.late - {call})
            yield rest._replace(manifest=call.new) if self._fits(state, call) else rest
        for number, wal in enumerate(state.wals):
            for seq in range(state.boundaries[number]):
                if wal[seq] is not None:
                    yield state._replace(wals=_set(state.wals, number, _set(wal, seq, None)))

    def _fits(self, state: State, call: Call) -> bool:
        return not self.rules.replaces_conditionally or _etag(state.manifest) == call.expected

    def _metadata(self, state: State) -> Iterator[State]:
        """Seal the leader, give the partition of a sealed leader to another gateway, or move it as planned."""
        leader = state.leader
        if state.leader_epoch >= self.rules.moves:
            return
        if not state.sealed[leader]:
            yield state._replace(sealed=_set(state.sealed, leader, True))
        for number in range(self.rules.sessions):
            if state.sealed[number] or number == leader:
                continue
            session = state.sessions[leader]
            has_moved = session.serves == state.leader_epoch and session.moving_to == number
            if state.sealed[leader] or (has_moved and self._may_move(session)):
                yield self._led_by(state, number)

    def _may_move(self, session: Session) -> bool:
        is_uploaded = session.call is None and self._has_all(session)
        return is_uploaded or not self.rules.uploads_everything_before_a_move

    def _led_by(self, state: State, number: int) -> State:
        session, before = state.sessions[number], state.sessions[state.leader]
        epoch = state.leader_epoch + 1
        after = state._replace(leader=number, leader_epoch=epoch)
        if not state.sealed[state.leader]:
            # A zombie of a sealed session goes on; a leader that has moved the partition has stopped.
            after = after.having(state.leader, Session(uploads=before.uploads, generation=before.generation))
        fresh = Session(uploads=session.uploads, generation=session.generation, adopting=epoch)
        if not self.rules.reads_the_manifest_after_the_seal:
            fresh = fresh._replace(manifest=session.manifest, has_manifest=session.has_manifest)
        return after.having(number, fresh)

    # --- the adoption

    def _adopts(self, state: State, number: int, session: Session) -> Iterator[State]:
        if state.leader != number or state.leader_epoch != session.adopting:
            yield state.having(number, Session(uploads=session.uploads, generation=session.generation))
            return
        reads_boundaries = session.boundaries is None and (
            self.rules.reads_boundaries_before_the_manifest or session.has_manifest
        )
        if reads_boundaries:
            ended = tuple(each for each in range(self.rules.sessions) if state.sealed[each])
            yield state.having(
                number, session._replace(boundaries=state.boundaries, to_read=ended, position=-1)
            )
        elif not session.has_manifest:
            yield state.having(number, session._replace(manifest=state.manifest, has_manifest=True))
        elif session.to_read:
            yield state.having(number, self._reads_on(state, session))
        else:
            yield state.having(number, self._adopted(state, session))

    def _reads_on(self, state: State, session: Session) -> Session:
        assert session.to_read is not None
        assert session.boundaries is not None
        ended = session.to_read[0]
        position = max(session.position, session.boundaries[ended])
        wal, manifest = state.wals[ended], session.manifest
        if position >= len(wal):
            return session._replace(to_read=session.to_read[1:], position=-1)
        row = wal[position]
        after = session._replace(position=position + 1)
        if row is None:
            if state.boundaries[ended] <= position:
                return session._replace(breach="an adoption takes a log for damaged")
            if not self.rules.reads_again_when_objects_were_collected:
                return after
            return Session(uploads=session.uploads, generation=session.generation, adopting=session.adopting)
        place = self._order((row.leader_epoch, ended, position))
        newest = session.file[0]
        if manifest is not None:
            newest = max(newest, self._order((manifest.leader_epoch, manifest.session, manifest.seq)))
        if place >= newest:
            after = after._replace(file=(place, row.offset + 1))
        return after._replace(found=after.found | {row.offset})

    def _order(self, place: tuple[int, int, int]) -> tuple[int, int, int]:
        epoch, session, seq = place
        return place if self.rules.orders_side_files_by_leader_epoch else (session, epoch, seq)

    def _adopted(self, state: State, session: Session) -> Session:
        manifest = session.manifest
        end = 0 if manifest is None else manifest.end
        has = session.found | set(range(end))
        if has != set(range(state.confirmed)):
            lacking = f"an adoption has the records {sorted(has)} of {state.confirmed} confirmed ones"
            return session._replace(breach=lacking)
        place, content = session.file
        file = content if place > (-1, -1, -1) else end
        if file != state.confirmed:
            return session._replace(
                breach=f"an adoption has the side file of {file} records, not of {state.confirmed}"
            )
        return Session(
            serves=session.adopting,
            end=state.confirmed,
            known=manifest,
            uploads=session.uploads,
            generation=session.generation,
        )

    # --- the leader, and its zombie

    def _serves(self, state: State, number: int, session: Session) -> Iterator[State]:
        is_leader = state.leader == number and not state.sealed[number]
        if is_leader and session.moving_to < 0:
            if state.confirmed < self.rules.records:
                wal = (*state.wals[number], Row(state.confirmed, session.serves))
                after = state._replace(wals=_set(state.wals, number, wal), confirmed=state.confirmed + 1)
                yield after.having(number, session._replace(end=state.confirmed + 1))
            for other in range(self.rules.sessions):
                if other != number and not state.sealed[other] and session.call is None:
                    yield state.having(number, session._replace(moving_to=other))
        if session.call is not None:
            yield from self._looks(state, number, session, session.call)
        elif session.uploads < self.rules.uploads or (session.moving_to >= 0 and not self._has_all(session)):
            new = Manifest(session.serves, number, session.generation, session.end, len(state.wals[number]))
            asked = session._replace(
                uploads=min(self.rules.uploads, session.uploads + 1), generation=session.generation + 1
            )
            yield from self._calls(state, number, asked, Call(_etag(session.known), new))
        if is_leader and session.call is None and session.known is not None:
            # The barrier has confirmed that the session is in force.
            covered = _covered(state.wals[number], number, session.known)
            if covered > state.boundaries[number]:
                yield state._replace(boundaries=_set(state.boundaries, number, covered))

    def _has_all(self, session: Session) -> bool:
        known = session.known
        return known is not None and (known.end, known.leader_epoch) == (session.end, session.serves)

    def _calls(self, state: State, number: int, session: Session, call: Call) -> Iterator[State]:
        """Replace the manifest: the answer comes, or gets lost, or the call arrives later."""
        unknown = session._replace(call=call)
        if self._fits(state, call):
            done = state._replace(manifest=call.new)
            yield done.having(number, session._replace(known=call.new, call=None))
            yield done.having(number, unknown)
        else:
            yield state.having(number, unknown)
        if not any(late.new.session == number for late in state.late):
            yield state._replace(late=state.late | {call}).having(number, unknown)

    def _looks(self, state: State, number: int, session: Session, call: Call) -> Iterator[State]:
        """Read the manifest after a call that did not succeed, or of which nobody knows."""
        found = state.manifest
        if found == call.new:
            yield state.having(number, session._replace(known=call.new, call=None))
        elif (
            found is not None
            and found.leader_epoch > call.new.leader_epoch
            and self.rules.never_replaces_a_later_epoch
        ):
            yield state.having(number, Session(uploads=session.uploads, generation=session.generation))
        else:
            yield from self._calls(state, number, session, Call(_etag(found), call.new))

    # --- the collector of sealed logs

    def _collector(self, state: State) -> Iterator[State]:
        """Judge a sealed log by the manifest, and later move its boundary."""
        if state.judged is not None:
            number, seq = state.judged
            boundaries = _set(state.boundaries, number, max(seq, state.boundaries[number]))
            yield state._replace(judged=None, boundaries=boundaries)
            return
        for number, wal in enumerate(state.wals):
            if not state.sealed[number]:
                continue
            covered = len(wal)
            if self.rules.collects_only_what_a_manifest_has:
                covered = 0 if state.manifest is None else _covered(wal, number, state.manifest)
            if covered > state.boundaries[number]:
                yield state._replace(judged=(number, covered))


def _covered(wal: tuple[Row | None, ...], session: int, manifest: Manifest) -> int:
    """Return the seq of the first object that has something the manifest lacks."""
    place = (manifest.leader_epoch, manifest.session, manifest.seq)
    for seq, row in enumerate(wal):
        if row is not None and not (row.offset < manifest.end and (row.leader_epoch, session, seq) < place):
            return seq
    return len(wal)


def _etag(manifest: Manifest | None) -> Etag:
    return NO_MANIFEST if manifest is None else manifest.etag


def _set(values: tuple, place: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:place], value, *values[place + 1 :])
