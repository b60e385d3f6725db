"""The checkers of named applications find no breach in a correct gateway's history, and find every alteration
of it.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.simulation.alterations import Alteration
from tests.simulation.alterations_of_names import ALTERATIONS_OF_NAMES
from tests.simulation.checkers import breaches, check
from tests.simulation.naive_names import NaiveNames

SEEDS = st.integers(0, 2**32)


@given(SEEDS)
@settings(max_examples=150)
def test_a_sound_history_has_no_breach(seed: int) -> None:
    assert breaches(NaiveNames(Random(seed)).run(80)) == []


@pytest.mark.parametrize("alteration", ALTERATIONS_OF_NAMES, ids=lambda alteration: alteration.__name__)
@given(seed=SEEDS)
@settings(max_examples=25)
def test_one_alteration_of_a_sound_history_is_a_breach(alteration: Alteration, seed: int) -> None:
    chance = Random(seed)
    history = NaiveNames(chance).run(80)
    events = alteration(history, chance)
    assume(events is not None)
    assert events is not None
    assert check(replace(history, events=events))
