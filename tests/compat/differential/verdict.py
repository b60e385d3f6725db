"""Compares the differences of a scenario with the known differences."""

from __future__ import annotations

from collections.abc import Sequence

from tests.compat.differential.compare import Difference
from tests.compat.differential.known_differences import KnownDifference


def complaints(scenario: str, found: Sequence[Difference], known: Sequence[KnownDifference]) -> list[str]:
    """Return a sentence for every difference that is not known, and for every known one that no longer
    occurs.
    """
    new = [item for item in found if not any(entry.covers(scenario, item) for entry in known)]
    gone = [
        entry
        for entry in known
        if entry.must_occur_in(scenario) and not any(entry.covers(scenario, item) for item in found)
    ]
    return [f"differs at {item}" for item in new] + [
        f"is listed as a known difference and no longer differs at {entry.path}: {entry.reason}"
        for entry in gone
    ]
