"""The protocol of manifests, parts and garbage over several sessions, as a machine whose states can all be
visited.

Each session seals all earlier ones, reads the manifest of the only partition and the write-ahead logs (WALs)
behind it, and then writes. A writer appends records, confirms each as one WAL object, uploads what is
confirmed as parts, replaces the manifest by a conditional call that may arrive late or whose answer may be
lost, and collects garbage: WAL objects, replaced parts, orphans. Every session may be slow at any step, for
ever, so it also acts as a zombie after others took over. What must hold in every state:

- a session that starts to write has all records that the sealed sessions confirmed, in order, and no other;
- the side file that the session got is the newest one that was confirmed;
- the parts named by the manifest in the bucket, and by that of the session in force, are in the bucket.

`tests.models.wal_protocol` proves the WAL itself, so here an object is created and confirmed, and a log
sealed, in one step. A slow session stands for calls that take long. Each record has its own WAL object, with
a row for the side file, whose content is the records before and with it. Deletes that a session may carry out
are carried out by anybody, at any later time.

    python -m tests.models.manifest_protocol --sessions 3 --records 2
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Final, TypeVar

from tests.models.manifest_states import Call, Explored, Manifest, Part, Session, Stage, State, explored

T = TypeVar("T")

NOT_OURS: Final = -1
"""The session in the etag of a manifest that does not exist."""


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """The size of the machine, and what of the protocol it keeps; each False is a mistake."""

    sessions: int = 2
    records: int = 2
    """Records that are appended in all, at most."""
    uploads: int = 2
    """Manifests that one session makes, at most."""
    sweeps: bool = False
    """Whether sessions look for orphans."""
    loses_answers: bool = True
    """Whether calls arrive late and answers get lost."""
    reads_manifests_after_the_seals: bool = True
    passes_the_barrier_before_the_boundary_moves: bool = True
    passes_the_barrier_before_parts_go: bool = True
    moves_the_boundary_before_it_deletes: bool = True
    covers_earlier_sessions_before_their_boundary_moves: bool = True
    looks_at_the_boundary_for_missing_objects: bool = True
    keeps_files_of_the_manifest: bool = True
    """Whether a start skips file rows that the manifest's files already have in them."""
    uploads_only_confirmed_bytes: bool = True
    confirms_side_files_before_the_manifest: bool = True
    replaces_manifests_conditionally: bool = True
    compares_the_whole_manifest: bool = True
    """Whether a session that looks for its manifest takes only this very one, not any of its own, for the one
    it wrote.
    """
    passes_the_barrier_after_a_start: bool = True
    replaces_the_manifest_before_a_sweep: bool = True
    passes_the_barrier_after_listing: bool = True
    spares_running_uploads: bool = True


class Machine:
    """All states of a protocol."""

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol

    def explore(self, most_states: int = sys.maxsize) -> Explored:
        """Visit all states, or so many, until something does not hold."""
        sessions = self._protocol.sessions
        first = State(
            wals=((),) * sessions,
            sealed=(False,) * sessions,
            boundaries=(0,) * sessions,
            confirmed=(),
            manifest=None,
            parts=frozenset(),
            doomed=frozenset(),
            late=frozenset(),
            sessions=(Session(stage=Stage.WRITE), *(Session() for _ in range(sessions - 1))),
        )
        return explored(first, self._following, self._breach, most_states)

    # --- what must hold

    def _breach(self, state: State) -> str | None:
        if state.manifest is not None and not _names(state.manifest) <= state.parts:
            return "the manifest in the bucket names a part that is gone"
        for number, session in enumerate(state.sessions):
            if session.stage == Stage.FAILED:
                return session.sentence
            in_force = not state.sealed[number] and session.stage in {Stage.READ, Stage.WRITE}
            if in_force and session.manifest is not None and not _names(session.manifest) <= state.parts:
                return "the manifest of the session in force names a part that is gone"
        return None

    # --- what may happen next

    def _following(self, state: State) -> Iterator[State]:
        yield from self._bucket_acts(state)
        for number, session in enumerate(state.sessions):
            if session.stage == Stage.SEAL:
                yield from self._seals(state, number, session)
            elif session.stage == Stage.READ:
                yield self._believes(self._reads_on(state, number, session), number)
            elif session.stage == Stage.WRITE:
                yield from self._writes(state, number, session)
                yield from self._uploads(state, number, session)
                yield from self._collects(state, number, session)
                if self._protocol.sweeps:
                    yield from self._sweeps(state, number, session)

    def _bucket_acts(self, state: State) -> Iterator[State]:
        """Carry out late replacements of the manifest, and the deletes that some session decided on."""
        for call in state.late:
            rest = state._replace(late=state.late - {call})
            yield rest._replace(manifest=call.new) if self._fits(state, call) else rest
        for name in state.doomed:
            yield state._replace(parts=state.parts - {name}, doomed=state.doomed - {name})
        for number, wal in enumerate(state.wals):
            for seq in range(state.boundaries[number]):
                if wal[seq] is not None:
                    yield state._replace(wals=_set(state.wals, number, _set(wal, seq, None)))

    def _fits(self, state: State, call: Call) -> bool:
        return not self._protocol.replaces_manifests_conditionally or _etag(state.manifest) == call.expected

    # --- a start

    def _seals(self, state: State, number: int, session: Session) -> Iterator[State]:
        """Seal the next earlier session, or read the manifest."""
        late = self._protocol.reads_manifests_after_the_seals
        if not late and not session.has_manifest:
            yield state.with_session(number, self._with_manifest(state, session))
        elif session.sealed < number:
            earlier = session.sealed
            positions = (*session.positions, state.boundaries[earlier])
            following = session._replace(sealed=earlier + 1, positions=positions)
            yield state._replace(sealed=_set(state.sealed, earlier, True)).with_session(number, following)
        else:
            following = self._with_manifest(state, session) if late else session
            yield state.with_session(number, following._replace(stage=Stage.READ))

    def _believes(self, state: State, number: int) -> State:
        """Pass the barrier before the session writes, or takes anything for damaged: a later session may have
        collected what it read.
        """
        session = state.sessions[number]
        is_sealed = state.sealed[number] and self._protocol.passes_the_barrier_after_a_start
        if is_sealed and session.stage in {Stage.WRITE, Stage.FAILED}:
            return state.with_session(number, session._replace(stage=Stage.END))
        return state

    @staticmethod
    def _with_manifest(state: State, session: Session) -> Session:
        manifest = state.manifest
        read = session._replace(manifest=manifest, has_manifest=True)
        return read if manifest is None else read._replace(log=_records(manifest), file=manifest.file)

    def _reads_on(self, state: State, number: int, session: Session) -> State:
        """Read the next WAL object, or begin to write behind the last one."""
        if session.reading == number:
            return state.with_session(number, self._rebuilt(state, number, session))
        wal = state.wals[session.reading]
        position = session.positions[session.reading]
        if position == len(wal):
            return state.with_session(number, session._replace(reading=session.reading + 1))
        entry = wal[position]
        if entry is None:
            return state.with_session(number, self._finds_nothing(state, session, position))
        end = entry + 1
        after = session._replace(positions=_set(session.positions, session.reading, position + 1))
        if end > len(session.log):
            if entry != len(session.log):
                return state.with_session(number, after.failed("a start finds a hole between two rows"))
            after = after._replace(log=state.confirmed[:end])
        covered = 0 if session.manifest is None else len(session.manifest.file)
        if end > covered or not self._protocol.keeps_files_of_the_manifest:
            after = after._replace(file=state.confirmed[:end])
        return state.with_session(number, after)

    def _finds_nothing(self, state: State, session: Session, position: int) -> Session:
        boundary = state.boundaries[session.reading]
        if boundary > position and self._protocol.looks_at_the_boundary_for_missing_objects:
            return session._replace(positions=_set(session.positions, session.reading, boundary))
        return session.failed("a start takes the log for damaged")

    @staticmethod
    def _rebuilt(state: State, number: int, session: Session) -> Session:
        known = tuple(record for record in state.confirmed if record < number)
        if session.log != known:
            return session.failed(f"a start has the records {session.log}, and {known} are confirmed")
        if session.file != known:
            return session.failed(f"a start has the file of {session.file}, and that of {known} is confirmed")
        return session._replace(stage=Stage.WRITE, is_counted=True, confirmed_end=len(session.log))

    # --- a writer, in force or not

    def _writes(self, state: State, number: int, session: Session) -> Iterator[State]:
        """Append a record, and confirm the one that was appended by a WAL object. A sealed session ends with
        that.
        """
        appended = len(state.confirmed) + sum(
            len(other.log) - other.confirmed_end for other in state.sessions if other.stage == Stage.WRITE
        )
        if len(session.log) == session.confirmed_end:
            if appended < self._protocol.records:
                yield state.with_session(number, session._replace(log=(*session.log, number)))
        elif state.sealed[number]:
            yield state.with_session(number, session._replace(stage=Stage.END))
        else:
            wal = (*state.wals[number], session.confirmed_end)
            after = state._replace(
                wals=_set(state.wals, number, wal), confirmed=(*state.confirmed, session.log[-1])
            )
            yield after.with_session(number, session._replace(confirmed_end=len(session.log)))

    def _uploads(self, state: State, number: int, session: Session) -> Iterator[State]:
        """Upload a part, replace the manifest, find out how that ended, and pass the barrier."""
        plan = session.plan
        if plan is None:
            if session.uploads < self._protocol.uploads:
                yield from self._plans(state, number, session)
        elif session.call is None:
            if self._may_replace(session, plan):
                call = Call(_etag(session.manifest), plan)
                yield from self._calls(state, number, session, call)
        else:
            yield from self._looks(state, number, session, session.call)
        if plan is None and session.manifest is not None and not session.is_counted:
            end = session._replace(stage=Stage.END)
            counted = session._replace(is_counted=True, garbage=frozenset())
            following = end if state.sealed[number] else counted
            after = state if state.sealed[number] else _dooming(state, session.garbage)
            yield after.with_session(number, following)

    def _may_replace(self, session: Session, plan: Manifest) -> bool:
        return (
            not self._protocol.confirms_side_files_before_the_manifest
            or len(plan.file) <= session.confirmed_end
        )

    def _plans(self, state: State, number: int, session: Session) -> Iterator[State]:
        """Put the new bytes as a part; or all bytes as one part, in place of those before, as compaction
        does.
        """
        bytes_end = session.confirmed_end if self._protocol.uploads_only_confirmed_bytes else len(session.log)
        before = () if session.manifest is None else session.manifest.parts
        uploaded = 0 if session.manifest is None else len(_records(session.manifest))
        name = (number, session.uploads)
        plans: list[tuple[Part, ...]] = []
        if bytes_end > uploaded:
            plans.append((*before, Part(name, session.log[uploaded:bytes_end])))
        if bytes_end and before:
            plans.append((Part(name, session.log[:bytes_end]),))
        # Where the side file includes the records' state, the wait for the side file confirms the records,
        # too.
        file = (
            session.log
            if self._protocol.uploads_only_confirmed_bytes
            else session.log[: session.confirmed_end]
        )
        for parts in plans:
            plan = Manifest(number, session.uploads, file, parts)
            after = state._replace(parts=state.parts | {name})
            yield after.with_session(number, session._replace(plan=plan, uploads=session.uploads + 1))

    def _calls(self, state: State, number: int, session: Session, call: Call) -> Iterator[State]:
        """Replace the manifest: the answer comes, or gets lost, or the call arrives later."""
        unknown = session._replace(call=call)
        if self._fits(state, call):
            done = state._replace(manifest=call.new)
            yield done.with_session(number, self._replaced(session, call.new))
            if self._protocol.loses_answers:
                yield done.with_session(number, unknown)
        else:
            yield state.with_session(number, unknown)
        if self._protocol.loses_answers and not any(late.new.session == number for late in state.late):
            yield state._replace(late=state.late | {call}).with_session(number, unknown)

    def _looks(self, state: State, number: int, session: Session, call: Call) -> Iterator[State]:
        """Read the manifest after a call that did not succeed, or of which nobody knows."""
        found = state.manifest
        compares = self._protocol.compares_the_whole_manifest
        if found is not None and (found == call.new or (not compares and found.session == number)):
            yield state.with_session(number, self._replaced(session, call.new))
        elif found is not None and found.session > number:
            yield state.with_session(number, session._replace(stage=Stage.END))
        else:
            yield from self._calls(state, number, session, Call(_etag(found), call.new))

    def _replaced(self, session: Session, new: Manifest) -> Session:
        """Note that the bucket has the new manifest."""
        before = frozenset() if session.manifest is None else _names(session.manifest)
        return session._replace(
            manifest=new,
            plan=None,
            call=None,
            is_counted=False,
            garbage=session.garbage | (before - _names(new)),
        )

    def _collects(self, state: State, number: int, session: Session) -> Iterator[State]:
        """Move boundaries and delete, as far as the manifest covers the WALs."""
        protocol = self._protocol
        if not protocol.passes_the_barrier_before_parts_go and session.garbage:
            yield _dooming(state, session.garbage).with_session(number, session._replace(garbage=frozenset()))
        if session.manifest is None:
            return
        if not session.is_counted and protocol.passes_the_barrier_before_the_boundary_moves:
            return
        manifest = session.manifest
        covered = min(len(_records(manifest)), len(manifest.file))
        for earlier in range(number + 1):
            wal = state.wals[earlier]
            begin = sum(map(len, state.wals[:earlier]))
            end = min(len(wal), max(0, covered - begin))
            if earlier < number:
                all_covered = begin + len(wal) <= covered
                if protocol.covers_earlier_sessions_before_their_boundary_moves and not all_covered:
                    continue
                end = len(wal)
            if not protocol.moves_the_boundary_before_it_deletes:
                for seq in range(end):
                    if wal[seq] is not None:
                        yield state._replace(wals=_set(state.wals, earlier, _set(wal, seq, None)))
            if end > state.boundaries[earlier]:
                yield state._replace(boundaries=_set(state.boundaries, earlier, end))

    def _sweeps(self, state: State, number: int, session: Session) -> Iterator[State]:
        """List the parts, pass the barrier, and delete those that the manifest does not name."""
        protocol = self._protocol
        if session.listed is None:
            is_own = session.manifest is not None and session.manifest.session == number
            if protocol.replaces_the_manifest_before_a_sweep and not (is_own and session.is_counted):
                return
            orphans = state.parts - state.doomed - session.garbage
            if session.manifest is not None:
                orphans -= _names(session.manifest)
            if session.plan is not None and protocol.spares_running_uploads:
                orphans -= _names(session.plan)
            if orphans:
                yield state.with_session(number, session._replace(listed=orphans))
        elif state.sealed[number] and protocol.passes_the_barrier_after_listing:
            yield state.with_session(number, session._replace(stage=Stage.END))
        else:
            yield _dooming(state, session.listed).with_session(number, session._replace(listed=None))


def _etag(manifest: Manifest | None) -> tuple[int, int]:
    return (NOT_OURS, 0) if manifest is None else (manifest.session, manifest.generation)


def _names(manifest: Manifest) -> frozenset[tuple[int, int]]:
    return frozenset(part.name for part in manifest.parts)


def _records(manifest: Manifest) -> tuple[int, ...]:
    return tuple(record for part in manifest.parts for record in part.records)


def _dooming(state: State, names: frozenset[tuple[int, int]]) -> State:
    return state._replace(doomed=state.doomed | (names & state.parts))


def _set(values: tuple[T, ...], place: int, value: T) -> tuple[T, ...]:
    return (*values[:place], value, *values[place + 1 :])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.models.manifest_protocol")
    for field in fields(Protocol):
        if field.type == "int":
            parser.add_argument(f"--{field.name}", type=int, default=field.default)
    parser.add_argument("--sweeps", action="store_true")
    began_s = time.monotonic()
    protocol = Protocol(**vars(parser.parse_args()))
    found = Machine(protocol).explore()
    print(f"{found.states} states in {time.monotonic() - began_s:.0f} s")
    if found.breach is not None:
        print(found.breach.sentence, *found.breach.path, sep="\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
