"""The rules that judge a cluster: from its state and its history to problems with advice. Pure.

A rule over time needs ENOUGH samples over LONG_ENOUGH_MS; with fewer it judges nothing, and `Health.unjudged`
names it, so that no page calls a cluster sound that nobody has watched. It compares the medians of three
parts of the time, so that a spike or a lull between two samples is no trend.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from seqgate.gateway.admin.status import ClusterStatus, Status, TroubledPartition
from seqgate.gateway.admin.tables import counted, duration, shown
from seqgate.gateway.console.answer import address, topic_path
from seqgate.gateway.console.metrics.history import HOUR_MS, MINUTE_MS, Series
from seqgate.gateway.console.rights import is_refused

MOST_NAMED: Final = 5
"""Partitions, groups or transactions that a kind of problem names; it counts the others."""


class Problem(NamedTuple):
    """A problem, the advice, the page with more, and a command. With `is_bad` somebody can't work."""

    title: str
    advice: str
    link: str = ""
    is_bad: bool = True
    command: str = ""


class Health(NamedTuple):
    """The problems, the bad ones first, and what could not be judged yet."""

    problems: Sequence[Problem]
    unjudged: Sequence[str]


# Trends.

ENOUGH: Final = 9
"""Samples without which there is no judgement."""
LONG_ENOUGH_MS: Final = 5 * 60_000
"""Time that the samples must span."""
_PARTS: Final = 3
SECOND_MS: Final = 1_000


class Trend(NamedTuple):
    """The medians of the three parts of a time, and the change in a minute between the first and the last."""

    medians: tuple[float, float, float]
    per_minute: float

    @property
    def rises(self) -> bool:
        return self.medians[0] < self.medians[1] < self.medians[2]

    @property
    def falls(self) -> bool:
        return self.medians[0] > self.medians[1] > self.medians[2]


def trend_of(samples: Series) -> Trend | None:
    """Return the trend of a series; None without enough samples."""
    points = samples.known()
    if len(points) < ENOUGH or points[-1][0] - points[0][0] < LONG_ENOUGH_MS:
        return None
    length = (points[-1][0] - points[0][0]) / _PARTS
    bounds = [points[0][0] + length * part for part in range(1, _PARTS)]
    parts: list[list[float]] = [[] for _ in range(_PARTS)]
    for time_ms, value in points:
        parts[sum(time_ms >= bound for bound in bounds)].append(value)
    if not all(parts):
        return None
    first, middle, last = (statistics.median(part) for part in parts)
    minutes = length * (_PARTS - 1) / MINUTE_MS
    return Trend((first, middle, last), (last - first) / minutes)


# Groups: a lag that grows, and a group that stands still while records arrive.

LEAST_GROWTH: Final = 100
"""Records; a lag that has grown by less is no problem."""
GROWTH: Final = 1.2
"""The factor by which a lag must have grown."""
ALL_OF_IT: Final = 0.9
"""The part of the arriving records by which the lag of a group that reads nothing grows; the figures are
sampled, so they never fit exactly.
"""


STILL_MS: Final = 10 * 60_000
"""The time in which a group must have read something; consumers that commit less often seem to stand still.
"""


class GroupSamples(NamedTuple):
    """A group: its lag now and over time, its members (None: unknown), and for each topic its lag and the
    records that arrive in a second.
    """

    group: str
    lag: int | None
    members: int | None
    lags: Series
    topics: Mapping[str, tuple[Series, Series]] = {}


def judge_group(found: GroupSamples) -> Problem | None:
    """Return that a group stands still, or else that it falls behind; None for one that reads."""
    still = [topic for topic, (lags, rates) in sorted(found.topics.items()) if stands_still(lags, rates)]
    trend = trend_of(found.lags)
    grows = (
        trend is not None
        and trend.rises
        and trend.medians[-1] - trend.medians[0] >= LEAST_GROWTH
        and trend.medians[-1] >= trend.medians[0] * GROWTH
    )
    if not still and not grows:
        return None
    link = address("/groups/view", group=found.group)
    behind = "" if found.lag is None else f" It is {counted(found.lag, 'record')} behind."
    name = shown(found.group)
    if still:
        where = _named(still)
        if found.members == 0:
            advice = (
                f"Records arrive in {where}, and the group has no members.{behind} Start its consumers, or "
                "delete the group if nobody needs it."
            )
            return Problem(f"Group {name} reads nothing", advice, link)
        advice = (
            f"Records arrive in {where}, and its committed offsets do not move.{behind} Look at its members "
            "and at the log of its consumers: one may be stuck at a record, or not commit."
        )
        return Problem(f"Group {name} stands still", advice, link)
    assert trend is not None
    advice = (
        f"Its lag grows by {counted(max(1, round(trend.per_minute)), 'record')} in a minute.{behind} Add "
        "consumers, up to one for each partition, or make them faster."
    )
    return Problem(f"Group {name} falls behind", advice, link, is_bad=False)


def stands_still(lags: Series, rates: Series) -> bool:
    """Return whether records arrive and the lag grows by as many: nothing is read. A lag that falls once
    shows that the group reads.
    """
    points = lags.known(STILL_MS)
    if len(points) < ENOUGH or points[-1][0] - points[0][0] < LONG_ENOUGH_MS:
        return False
    values = [value for _, value in points]
    if any(after < before for before, after in itertools.pairwise(values)):
        return False
    arrived = arrivals(rates, points[0][0], points[-1][0])
    return arrived >= 1 and values[-1] - values[0] >= max(1.0, arrived * ALL_OF_IT)


def arrivals(rates: Series, begin_ms: int, end_ms: int) -> float:
    """Return how many records arrived between two times. A rate is that of the time before its sample."""
    points = rates.known()
    return sum(
        rate * (min(time_ms, end_ms) - max(before_ms, begin_ms)) / 1_000
        for (before_ms, _), (time_ms, rate) in itertools.pairwise(points)
        if time_ms > begin_ms and before_ms < end_ms
    )


# The time that producers wait.

P99_LIMIT_MS: Final = 1_000
"""The default of --p99-limit: above it applications notice that their sends wait."""
P99_MINUTES: Final = 5


def judge_produce_time(samples: Series, limit_ms: int = P99_LIMIT_MS) -> Problem | None:
    """Return that produce requests take longer than the limit, and have for the last minutes."""
    points = samples.known(P99_MINUTES * MINUTE_MS)
    if len(points) < ENOUGH:
        return None
    now = statistics.median(value for _, value in points)
    if now <= limit_ms:
        return None
    earlier = [value for time_ms, value in samples.known() if time_ms < points[0][0]]
    usual = f" Before, it was {_time(statistics.median(earlier))}." if len(earlier) >= ENOUGH else ""
    return Problem(
        f"Produce requests take {_time(now)} at the 99th percentile",
        f"The limit is {_time(limit_ms)} (--p99-limit), over the last {P99_MINUTES} minutes.{usual} Look at "
        "the disk, the CPU and the delay of the event loop below, and at the limits.",
        "/limits",
        is_bad=False,
    )


def _time(length_ms: float) -> str:
    return f"{length_ms:.0f} ms" if length_ms < SECOND_MS else duration(round(length_ms))


# Transactions.

SHORT_MS: Final = 10_000
"""No transaction is judged before this age."""
PART_OF_TIMEOUT: Final = 0.5
"""The part of its timeout after which a transaction is old, whatever is usual."""
TIMES_USUAL: Final = 5
"""How many times older than usual a transaction must be."""
LEAST_UNUSUAL_MS: Final = MINUTE_MS


class OpenTransaction(NamedTuple):
    transactional_id: str
    age_ms: int
    timeout_ms: int


def judge_transactions(
    found: Sequence[OpenTransaction], oldest: Series, hanging: int | None = None
) -> Iterator[Problem]:
    """Yield the transactions that are older than their kind: than half their timeout, or many times what the
    oldest of the cluster usually was (`oldest`, over the time before). `hanging`: those that nobody will end.
    """
    if hanging:
        yield Problem(
            f"{counted(hanging, 'transaction')} {'hangs' if hanging == 1 else 'hang'}",
            "No coordinator will end them, and consumers with read_committed wait before them.",
            "/transactions/hanging",
            command="seqgate transactions find-hanging",
        )
    old = [(row, why) for row in found if (why := _too_old(row, oldest)) is not None]
    for row, why in old[:MOST_NAMED]:
        yield Problem(
            f"The transaction of {shown(row.transactional_id)} is open for {duration(row.age_ms)}",
            f"{why} Consumers with read_committed wait before it. Look at its producer; if that is gone, "
            "abort the transaction.",
            address("/transactions/one", id=row.transactional_id),
            is_bad=False,
        )
    if len(old) > MOST_NAMED:
        rest = counted(len(old) - MOST_NAMED, "further transaction")
        yield Problem(f"{rest} open for too long", "The list has them.", "/transactions?state=Ongoing", False)


def _too_old(row: OpenTransaction, oldest: Series) -> str | None:
    if row.age_ms < SHORT_MS:
        return None
    if row.age_ms > row.timeout_ms:
        return f"Its timeout of {duration(row.timeout_ms)} is over."
    if row.age_ms >= row.timeout_ms * PART_OF_TIMEOUT:
        return f"That is more than half of its timeout, {duration(row.timeout_ms)}."
    began_ms = oldest.times[-1] - row.age_ms if oldest.times else 0
    before = [value for time_ms, value in oldest.known() if value > 0 and time_ms < began_ms]
    if row.age_ms < LEAST_UNUSUAL_MS or len(before) < ENOUGH:
        return None
    usual = statistics.quantiles(before, n=20)[-1]
    if row.age_ms < usual * TIMES_USUAL:
        return None
    return f"The oldest open transaction is usually below {_time(usual)}."


# Disks.

SOON_MS: Final = 12 * HOUR_MS
LATER_MS: Final = 72 * HOUR_MS
LEAST_FALL: Final = 0.001
"""The part of the free bytes that must have gone; less is noise."""


def full_in_ms(free: Series) -> int | None:
    """Return when a disk is full if its free bytes fall as they have; None if they don't, or if unknown."""
    trend = trend_of(free)
    if trend is None or not trend.falls:
        return None
    if trend.medians[0] - trend.medians[-1] < trend.medians[0] * LEAST_FALL:
        return None
    return round(trend.medians[-1] / -trend.per_minute * MINUTE_MS)


def judge_disk(broker: str, free: Series) -> Problem | None:
    full_ms = full_in_ms(free)
    if full_ms is None or full_ms > LATER_MS:
        return None
    return Problem(
        f"The disk of broker {broker} is full in {duration(full_ms)} at this rate",
        "Retention may free space before. Otherwise shorten the retention of the largest topics, delete "
        "topics, or add space: a gateway with a full disk refuses producers.",
        "/topics?sort=-size",
        is_bad=full_ms <= SOON_MS,
    )


# All rules together.


@dataclass(frozen=True, slots=True)
class Facts:
    """The state of a cluster as one person may see it. None: not known to the person, or to the console."""

    status: ClusterStatus | None = None
    gateways: Sequence[Status] | None = None
    are_gateways_silent: bool = False
    """Whether the status of some gateways is missing in `gateways`."""
    groups: Sequence[GroupSamples] | None = None
    transactions: Sequence[OpenTransaction] | None = None
    hanging: int | None = None
    oldest_transaction: Series = field(default_factory=Series)
    produce_p99: Series | None = None
    disks: Mapping[str, Series] = field(default_factory=dict)
    p99_limit_ms: int = P99_LIMIT_MS


def judge(facts: Facts) -> Health:
    judged = [
        *problems_of_gateways(facts.gateways or ()),
        *(() if facts.status is None else problems_of_cluster(facts.status)),
        *(judge_group(row) for row in facts.groups or ()),
        *judge_transactions(facts.transactions or (), facts.oldest_transaction, facts.hanging),
        None if facts.produce_p99 is None else judge_produce_time(facts.produce_p99, facts.p99_limit_ms),
        *(judge_disk(broker, free) for broker, free in sorted(facts.disks.items())),
    ]
    problems = [found for found in judged if found is not None]
    return Health(sorted(problems, key=lambda found: not found.is_bad), list(_unjudged(facts)))


def _unjudged(facts: Facts) -> Iterator[str]:
    """Yield what has too few samples, or none, to be judged."""
    if facts.groups is None or any(row.lag and trend_of(row.lags) is None for row in facts.groups):
        yield "lag over time"
    if facts.transactions is None:
        yield "transactions"
    if not facts.disks or any(trend_of(free) is None for free in facts.disks.values()):
        yield "the growth of the disk"
    if facts.produce_p99 is None:
        yield "produce time"
    if facts.gateways is None or facts.are_gateways_silent:
        yield "what gateways report of themselves"


def problems_of_cluster(status: ClusterStatus) -> Iterator[Problem]:
    """Yield what the brokers report over the Kafka protocol. A broker that refuses a person answers."""
    if status.controller is None:
        yield Problem("The cluster has no controller", "Topics can't be created or changed until it has one.")
    for broker in status.brokers:
        if broker.error is not None and not is_refused(broker.error):
            yield Problem(f"Broker {broker.node_id} at {broker.address} does not answer", broker.error)
        for directory in broker.log_dirs:
            if directory.error is not None and not is_refused(directory.error):
                yield Problem(
                    f"A log directory of broker {broker.node_id} is out of service", directory.error
                )
    if status.offline:
        yield Problem(
            f"{_counted(len(status.offline))} out of service: {_places(status.offline)}",
            "Clients can't read or write there. Look for the reason in the gateway's log; seqgate reopen "
            "opens a partition again.",
            "/topics?sort=-trouble",
        )
    if status.under_replicated:
        yield Problem(
            f"{_counted(len(status.under_replicated))} without all replicas in sync: "
            f"{_places(status.under_replicated)}",
            "Start the brokers that are missing.",
            "/topics?sort=-trouble",
            is_bad=False,
        )


def problems_of_gateways(reported: Sequence[Status]) -> Iterator[Problem]:
    """Yield what only gateways themselves report. Of several, a problem names those that have it."""
    found: dict[Problem, list[str]] = {}
    for status in reported:
        for problem in _problems_of_gateway(status):
            found.setdefault(problem, []).append(str(status.node_id))
    for problem, nodes in found.items():
        where = f" on {'node' if len(nodes) == 1 else 'nodes'} {_named(nodes)}" if len(reported) > 1 else ""
        yield problem._replace(title=f"{problem.title}{where}")


def _problems_of_gateway(status: Status) -> Iterator[Problem]:
    for offline in status.offline_partitions[:MOST_NAMED]:
        yield Problem(
            f"Partition {offline.partition} of {offline.topic} is out of service",
            f"{offline.reason}. When the disk is well, open the partition again.",
            topic_path(offline.topic),
            command=f"seqgate reopen {offline.topic} {offline.partition}",
        )
    if status.is_disk_short:
        yield Problem(
            "The disk is nearly full, and producers are refused",
            "Delete topics, shorten their retention, or add space.",
            "/topics?sort=-size",
        )
    if status.producer_id_store_error is not None:
        yield Problem("New producer ids can't be claimed", status.producer_id_store_error, "/producer-ids")
    for row in status.damaged[:MOST_NAMED]:
        yield Problem(
            f"Offsets {row.first_offset:,} to {row.end_offset - 1:,} of {row.topic}-{row.partition} are "
            "damaged",
            "Consumers get an error there. Stop the gateway, and repair the partition.",
            topic_path(row.topic),
            command="seqgate repair",
        )
    if status.is_lease_over:
        yield Problem(
            "A gateway has lost its lease, and refuses its clients",
            "Other gateways may lead its partitions. Check the bucket and the network to it.",
            "/cluster",
        )
    if status.bucket is not None and status.bucket.is_behind:
        yield Problem(
            "The bucket is behind, and producers are refused",
            "Check the bucket and the network to it.",
            "/cluster",
        )
    for sentence in status.missing_workers:
        yield Problem("A worker does not answer", sentence, "/logs")
    for certificate in status.certificates:
        if certificate.warning is not None:
            yield Problem(
                f"The certificate of listener {certificate.listener} needs care",
                certificate.warning,
                is_bad=False,
            )


def _counted(number: int) -> str:
    return "1 partition is" if number == 1 else f"{number:,} partitions are"


def _places(rows: Sequence[TroubledPartition]) -> str:
    return _named([f"{row.topic}-{row.partition}" for row in rows])


def _named(names: Iterable[str]) -> str:
    every = list(names)
    named = ", ".join(every[:MOST_NAMED])
    return named if len(every) <= MOST_NAMED else f"{named} and {len(every) - MOST_NAMED:,} more"
