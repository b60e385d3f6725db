"""All states of the protocol of a session's write-ahead log are visited, and each planted mistake is found
among them.

`python -m tests.models.wal_protocol --objects 4` visits more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from seqgate.gateway.cluster.wal import session_wal
from seqgate.gateway.cluster.wal.session_wal import Confirmations, ObjectOutcome, ObjectStep
from tests.models.wal_protocol import Explored, Machine, Protocol

AS_DESIGNED = (
    (Protocol(objects=3), 50_000),
    (Protocol(objects=2, copies=2), 9_000),
    (Protocol(objects=2, takers=2), 70_000),
    (Protocol(objects=3, window=1), 20_000),
    (Protocol(objects=4, copies=2, collects=False), 5_000),
)
"""Protocols, and how many states each has at least."""


@pytest.mark.parametrize(("protocol", "fewest_states"), AS_DESIGNED)
def test_nothing_confirmed_is_ever_lost(protocol: Protocol, fewest_states: int) -> None:
    explored = Machine(protocol).explore()
    assert explored.breach is None
    assert explored.states >= fewest_states


MISTAKES = (
    (Protocol(looks_at_the_boundary_after_the_seal=False), "is confirmed, and 1 is sealed"),
    (Protocol(moves_the_boundary_before_it_deletes=False), "is confirmed, and 1 is sealed"),
    (Protocol(objects=3, replaces_the_boundary_conditionally=False), "is confirmed, and 2 is sealed"),
    (Protocol(keeps_seals=False), "is confirmed, and"),
    (Protocol(sees_uploads_after_the_seal=False), "the taker has not got it"),
    (Protocol(takers=2, takers_move_the_boundary=False), "two takers ended the session at different places"),
)


@pytest.mark.parametrize(
    ("protocol", "words"),
    MISTAKES,
    ids=[
        "no look at the boundary",
        "delete first",
        "plain replacement",
        "delete seals",
        "old uploads",
        "takers",
    ],
)
def test_a_mistake_of_the_protocol_is_found(protocol: Protocol, words: str) -> None:
    assert_found(Machine(protocol).explore(), words)


def taken_is_success(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(session_wal, "_OWN", session_wal._OWN | {ObjectOutcome.TAKEN})
    patch.setattr(session_wal, "_NEXT", {**session_wal._NEXT, ObjectOutcome.TAKEN: ObjectStep.REST})


def taken_is_a_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(session_wal, "_FENCING", session_wal._FENCING | {ObjectOutcome.TAKEN})


def unknown_is_success(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(session_wal, "_OWN", session_wal._OWN | {ObjectOutcome.UNKNOWN})


def a_seal_is_success(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(session_wal, "_OWN", session_wal._OWN | {ObjectOutcome.SEALED})
    patch.setattr(session_wal, "_FENCING", frozenset())


def missing_is_a_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(session_wal, "_FENCING", session_wal._FENCING | {ObjectOutcome.MISSING})


def confirmed_without_the_objects_before(patch: pytest.MonkeyPatch) -> None:
    def confirm(self: Confirmations) -> range:
        begin = self.confirmed_end
        if self._own:
            self.confirmed_end = max(self._own) + 1
            self._own.clear()
        return range(begin, self.confirmed_end)

    patch.setattr(Confirmations, "confirm", confirm)


RULES: Mapping[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "taken is success": (taken_is_success, "is confirmed, and"),
    "taken is a fence": (taken_is_a_fence, "is fenced, and nobody has sealed"),
    "unknown is success": (unknown_is_success, "is confirmed, and"),
    "a seal is success": (a_seal_is_success, "is confirmed, and"),
    "missing is a fence": (missing_is_a_fence, "is fenced, and nobody has sealed"),
    "no contiguity": (confirmed_without_the_objects_before, "is confirmed, and"),
}


@pytest.mark.parametrize("collects", [True, False])
@pytest.mark.parametrize("name", RULES)
def test_a_mistake_of_the_rules_is_found(
    name: str, *, collects: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, words = RULES[name]
    plant(monkeypatch)
    assert_found(Machine(Protocol(collects=collects)).explore(), words)


def assert_found(explored: Explored, words: str) -> None:
    assert explored.breach is not None
    assert words in explored.breach.sentence
    assert len(explored.breach.path) > 2
