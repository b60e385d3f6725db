"""The delayed records: how many wait, and in which topics records can wait."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.console.asking.topics import topic_settings
from seqgate.gateway.console.metrics import rates
from seqgate.gateway.console.metrics.listener import Sample, samples
from seqgate.gateway.console.page import Answer, Data, Feed, Look, Page, Section, View, Visit, page_of

HEADER: Final = "delivery.delay.header"
LONGEST: Final = "delivery.delay.max.ms"
HOLD: Final = "delivery.delay.hold.ms"
LIMIT: Final = "seqgate.delayed.records.max"
_METRICS: Final = ("seqgate_delayed_records", "seqgate_limit_max")


class DelayingTopic(NamedTuple):
    """A topic with a header for delays."""

    name: str
    header: str
    longest_ms: int | None
    hold_ms: int | None


def delayed(visit: Visit) -> Answer:
    """Show the topics with a header for delays, and how many records wait."""
    with visit.cluster() as cluster:
        settings = topic_settings(cluster, (HEADER, LONGEST, HOLD))
    topics = [
        DelayingTopic(name, values[HEADER], _number(values.get(LONGEST)), _number(values.get(HOLD)))
        for name, values in sorted(settings.items())
        if values.get(HEADER)
    ]
    rows, paging = page_of(topics, visit.number("page", 1, 1))
    return View(
        "delayed.html",
        {"rows": rows, "paging": paging, "waiting": None, "most": None, "trouble": None, **_counted(visit)},
    )


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _counted(visit: Visit) -> dict[str, Any]:
    """Return how many records wait, and how many may; nothing without --metrics, and why where the listener
    fails.
    """
    listener = visit.console.listener
    if listener is None:
        return {}
    try:
        found = samples(listener.metrics(), _METRICS)
    except ControlError as error:
        return {"trouble": str(error)}
    waiting = [sample.value for sample in found if sample.name == "seqgate_delayed_records"]
    most = [sample.value for sample in found if sample.labels.get("setting") == LIMIT]
    return {
        "waiting": int(sum(waiting)) if waiting else None,
        "most": int(most[0]) if most else None,
    }


def figures(visit: Visit) -> Answer:
    """Return how many records have waited since a time."""
    sampler = visit.console.sampler
    times, series = sampler.history.since(visit.number("after", 0), (rates.DELAYED,))
    return Data({"times": times, "series": series, "error": sampler.error})


# The limits of the gateway, the nearest first.

USED: Final = "seqgate_limit_used"
MOST: Final = "seqgate_limit_max"
NEAR: Final = 0.8
"""The share of a limit from which on the page warns."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit: its setting, what counts towards it now, and the limit itself, None where the setting sets
    none.
    """

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


LIMITS_PAGE: Final = Page(
    title="Limits",
    path="/limits",
    section=Section.GATEWAYS,
    places=(Look("/limits", limits, waits_for="the gateway's metrics"),),
)


DELAYED_PAGE: Final = Page(
    title="Delayed records",
    path="/delayed",
    section=Section.DATA,
    key="d",
    places=(
        Look("/delayed", delayed, waits_for="the settings of the topics"),
        Feed("/api/delayed", figures),
    ),
)
