"""The limits of the gateway, the nearest first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gateway.console.metrics.listener import Sample, samples
from gateway.console.page import Answer, Look, Page, Section, View, Visit

USED: Final = "seqgate_limit_used"
MOST: Final = "seqgate_limit_max"
NEAR: Final = 0.8
"""The share of a limit from which on the page warns."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit: its setting, what counts towards it now, and the limit itself, None where the setting sets none."""

    setting: str
    used: float
    most: float | None

    @property
    def share(self) -> float:
        """How much of the limit is used, from 0 to 1; 0 without a limit."""
        return self.used / self.most if self.most else 0.0

    @property
    def is_near(self) -> bool:
        """Whether the page should warn."""
        return self.share >= NEAR

    @property
    def is_bytes(self) -> bool:
        """Whether the limit counts bytes."""
        return self.setting.endswith(".bytes")


def limits_of(found: Iterable[Sample]) -> list[Limit]:
    """Return the limits in a gateway's metrics, the nearest first."""
    used: dict[str, float] = {}
    most: dict[str, float] = {}
    for sample in found:
        (used if sample.name == USED else most)[sample.labels["setting"]] = sample.value
    limits = [Limit(setting, value, most.get(setting)) for setting, value in used.items()]
    return sorted(limits, key=lambda limit: (-limit.share, limit.setting))


def limits(visit: Visit) -> Answer:
    """Show all limits."""
    if not visit.has_metrics:
        return View("limits.html", {"limits": []})
    return View("limits.html", {"limits": limits_of(samples(visit.metrics_text(), (USED, MOST)))})


PAGE: Final = Page(
    title="Limits",
    path="/limits",
    section=Section.GATEWAYS,
    places=(Look("/limits", limits, waits_for="the gateway's metrics"),),
)
