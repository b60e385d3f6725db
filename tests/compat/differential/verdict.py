"""Judges a scenario: what both endpoints answered must agree, and all that it waits for must have come."""

from __future__ import annotations

from collections.abc import Sequence

from tests.compat.differential.compare import Difference, differences
from tests.compat.differential.known_differences import KnownDifference
from tests.compat.differential.peer import Transcript


def expect_agreement(
    scenario: str, kafka: Transcript, gateway: Transcript, known: Sequence[KnownDifference]
) -> None:
    """Fail the test where the endpoints differ otherwise than is known, and where one has waited in vain."""
    found = [
        *waits_in_vain("Kafka", kafka),
        *waits_in_vain("Seqgate", gateway),
        *complaints(scenario, differences(kafka, gateway), known),
    ]
    assert not found, "\n".join([f"{scenario}:", *found])


def waits_in_vain(endpoint: str, transcript: Transcript) -> list[str]:
    """Return a sentence for every wait whose time ran out.

    Two endpoints that both run out of time agree in nothing, and the minute is lost. A scenario waits for
    what each endpoint can say; where it says nothing, the scenario must ask for something else.
    """
    return [
        f"{endpoint} never did what exchange {number} ({exchange.label}) waits for, so that nothing was "
        f"compared: {exchange.instead}"
        for number, exchange in enumerate(transcript.exchanges, 1)
        if exchange.is_in_vain
    ]


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
