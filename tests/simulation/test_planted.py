"""Every planted fault finds the code that it changes, and restores the code afterwards."""

from __future__ import annotations

import pytest

from tests.simulation.planted import FAULTS, SOUGHT, Fault


@pytest.mark.parametrize("fault", [*FAULTS.values(), *SOUGHT.values()], ids=lambda fault: fault.name)
def test_it_can_be_planted_and_taken_back(fault: Fault) -> None:
    changes = fault.changes()
    before = [getattr(owner, name) for owner, name, _ in changes]
    with fault.plant():
        assert all(
            getattr(owner, name) is not old for (owner, name, _), old in zip(changes, before, strict=True)
        )
    assert [getattr(owner, name) for owner, name, _ in changes] == before
