"""The disk operations of lives without a fault, and their order, stay the same unless a commit says why."""

from __future__ import annotations

import pytest

from tests.faults.traced_lives import LIVES, TRACES, trace


@pytest.mark.parametrize("name", LIVES)
def test_the_operations_of_a_life_are_those_of_its_trace(name: str) -> None:
    assert trace(name) == (TRACES / f"{name}.txt").read_text(encoding="utf-8")
