"""All states of the protocol of takeovers and moves are visited, and each planted mistake is found among
them.
"""

from __future__ import annotations

from dataclasses import fields

import pytest

from tests.models.leadership_protocol import Machine, Rules

AS_DESIGNED = (
    (Rules(sessions=2, records=2, moves=2), 60_000),
    (Rules(sessions=2, records=1, moves=3, uploads=0), 5_000),
    (Rules(sessions=3, records=1, moves=2, uploads=0), 90_000),
)
"""Sizes of the model, and how many states each has at least."""
SMALL = {"sessions": 2, "records": 1, "moves": 1}
LOST = "an adoption has the records"
MISTAKES = {
    "reads_the_manifest_after_the_seal": (SMALL, LOST),
    "reads_boundaries_before_the_manifest": (SMALL, LOST),
    "reads_again_when_objects_were_collected": (SMALL, LOST),
    "collects_only_what_a_manifest_has": (SMALL, LOST),
    "replaces_conditionally": (SMALL, LOST),
    "never_replaces_a_later_epoch": ({"sessions": 3, "moves": 2, "uploads": 0}, LOST),
    "uploads_everything_before_a_move": (SMALL, LOST),
    "orders_side_files_by_leader_epoch": (
        {"sessions": 2, "records": 1, "moves": 3, "uploads": 0},
        "an adoption has the side file",
    ),
}
"""The rules, with the size of the model in which a mistake shows, and words of the sentence about it."""


@pytest.mark.parametrize(("rules", "fewest_states"), AS_DESIGNED)
def test_a_new_leader_gets_what_was_confirmed(rules: Rules, fewest_states: int) -> None:
    states, breach = Machine(rules).explore()
    assert breach is None
    assert states >= fewest_states


@pytest.mark.parametrize("rule", MISTAKES)
def test_a_mistake_is_found(rule: str) -> None:
    sizes, words = MISTAKES[rule]
    _, breach = Machine(Rules(**sizes, **{rule: False})).explore()
    assert breach is not None
    assert words in breach


def test_each_rule_has_a_mistake() -> None:
    assert MISTAKES.keys() == {field.name for field in fields(Rules) if field.type == "bool"}
