"""All states of the protocol of manifests and garbage are visited, and each planted mistake is found among
them.

`python -m tests.models.manifest_protocol --sessions 3 --records 2 --uploads 1` visits more.
"""

from __future__ import annotations

from dataclasses import fields

import pytest

from tests.models.manifest_protocol import Machine, Protocol

AS_DESIGNED = (
    (Protocol(records=1), 10_000),
    (Protocol(records=2, uploads=1), 7_000),
    (Protocol(records=1, sweeps=True), 50_000),
    (Protocol(sessions=3, records=1, uploads=1), 35_000),
    (Protocol(sessions=3, records=1, uploads=1, sweeps=True), 90_000),
    (Protocol(sessions=3, uploads=1, loses_answers=False), 80_000),
)
"""Protocols, and how many states each has at least."""


@pytest.mark.parametrize(("protocol", "fewest_states"), AS_DESIGNED)
def test_a_start_gets_what_was_confirmed(protocol: Protocol, fewest_states: int) -> None:
    found = Machine(protocol).explore()
    assert found.breach is None
    assert found.states >= fewest_states


LOST = "a start has the records"
NO_PART = "names a part that is gone"
DAMAGED = "a start takes the log for damaged"
FILE = "a start has the file of"

MISTAKES = {
    "reads_manifests_after_the_seals": (Protocol(reads_manifests_after_the_seals=False), LOST),
    "passes_the_barrier_before_the_boundary_moves": (
        Protocol(records=1, uploads=1, passes_the_barrier_before_the_boundary_moves=False),
        LOST,
    ),
    "passes_the_barrier_before_parts_go": (
        Protocol(records=1, passes_the_barrier_before_parts_go=False),
        NO_PART,
    ),
    "moves_the_boundary_before_it_deletes": (
        Protocol(records=1, uploads=1, moves_the_boundary_before_it_deletes=False),
        DAMAGED,
    ),
    "covers_earlier_sessions_before_their_boundary_moves": (
        Protocol(
            sessions=3,
            uploads=1,
            loses_answers=False,
            covers_earlier_sessions_before_their_boundary_moves=False,
        ),
        LOST,
    ),
    "looks_at_the_boundary_for_missing_objects": (
        Protocol(records=1, uploads=1, looks_at_the_boundary_for_missing_objects=False),
        DAMAGED,
    ),
    "keeps_files_of_the_manifest": (Protocol(uploads=1, keeps_files_of_the_manifest=False), FILE),
    "uploads_only_confirmed_bytes": (
        Protocol(records=1, uploads=1, uploads_only_confirmed_bytes=False),
        LOST,
    ),
    "confirms_side_files_before_the_manifest": (
        Protocol(uploads=1, confirms_side_files_before_the_manifest=False),
        FILE,
    ),
    "replaces_manifests_conditionally": (
        Protocol(records=1, uploads=1, replaces_manifests_conditionally=False),
        NO_PART,
    ),
    "compares_the_whole_manifest": (Protocol(records=1, compares_the_whole_manifest=False), NO_PART),
    "passes_the_barrier_after_a_start": (
        Protocol(sessions=3, records=1, uploads=1, passes_the_barrier_after_a_start=False),
        LOST,
    ),
    "replaces_the_manifest_before_a_sweep": (
        Protocol(records=1, uploads=1, sweeps=True, replaces_the_manifest_before_a_sweep=False),
        NO_PART,
    ),
    "passes_the_barrier_after_listing": (
        Protocol(records=1, uploads=1, sweeps=True, passes_the_barrier_after_listing=False),
        NO_PART,
    ),
    "spares_running_uploads": (Protocol(records=1, sweeps=True, spares_running_uploads=False), NO_PART),
}
"""Protocols that break one rule, by the rule, and words of the sentence about the state that it leads to."""


@pytest.mark.parametrize("rule", MISTAKES)
def test_a_mistake_of_the_protocol_is_found(rule: str) -> None:
    protocol, words = MISTAKES[rule]
    assert not getattr(protocol, rule)
    found = Machine(protocol).explore()
    assert found.breach is not None
    assert words in found.breach.sentence
    assert len(found.breach.path) > 2


def test_each_rule_has_a_mistake() -> None:
    sizes = {"sessions", "records", "uploads", "sweeps", "loses_answers"}
    assert MISTAKES.keys() == {field.name for field in fields(Protocol)} - sizes
