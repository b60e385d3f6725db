"""The rules that judge a cluster: each with what it finds, what it lets pass, and too few samples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from seqgate.gateway.admin.status import BrokerStatus, ClusterStatus, LogDir, StatusRequest, TroubledPartition
from seqgate.gateway.console.health import (
    ENOUGH,
    HOUR_MS,
    MINUTE_MS,
    Facts,
    GroupSamples,
    OpenTransaction,
    Problem,
    Series,
    arrivals,
    full_in_ms,
    judge,
    judge_disk,
    judge_group,
    judge_produce_time,
    judge_transactions,
    problems_of_cluster,
    stands_still,
    trend_of,
)
from tests.gateway.admin.answers import answer
from tests.gateway.handlers.support import open_node

EVERY_MS = 30_000
BEGIN_MS = 1_000_000_000


def over(count: int, value: Callable[[int], float | None], every_ms: int = EVERY_MS) -> Series:
    """Return samples of a function of their number."""
    return Series([BEGIN_MS + number * every_ms for number in range(count)], [value(n) for n in range(count)])


def group(lags: Series, topics: dict[str, tuple[Series, Series]] | None = None, **given: int) -> GroupSamples:
    known = lags.known()
    lag = int(known[-1][1]) if known else None
    return GroupSamples("readers", lag, given.get("members", 2), lags, topics or {})


# Trends.


def test_a_trend_is_the_change_between_the_parts_of_the_time() -> None:
    found = trend_of(over(30, lambda number: 100 * number))
    assert found is not None
    assert found.rises
    assert not found.falls
    assert found.per_minute == pytest.approx(200, rel=0.1)


@pytest.mark.parametrize(
    "samples",
    [
        Series(),
        over(ENOUGH - 1, float, MINUTE_MS),
        over(100, float, 1_000),
        over(30, lambda number: None if number % 5 else 1.0),
        over(30, lambda number: float(number) if number < 2 or number > 20 else None),
    ],
    ids=["none", "too few", "too short", "mostly gaps", "no middle"],
)
def test_there_is_no_trend_without_enough_samples(samples: Series) -> None:
    assert trend_of(samples) is None
    assert judge_group(group(samples)) is None
    assert judge_disk("1", samples) is None
    assert full_in_ms(samples) is None
    assert not stands_still(samples, samples)


def test_a_spike_is_no_trend() -> None:
    found = trend_of(over(30, lambda number: 1e6 if number == 29 else 5.0))
    assert found is not None
    assert not found.rises


# Groups.


def test_a_lag_that_grows_is_told_with_its_rate() -> None:
    found = judge_group(group(over(30, lambda number: 1_000 * number)))
    assert found is not None
    assert found.title == "Group readers falls behind"
    assert "grows by 2,0" in found.advice
    assert "29,000 records behind" in found.advice
    assert found.link == "/groups/view?group=readers"


@pytest.mark.parametrize(
    "lag",
    [
        lambda _: 35_000.0,
        lambda number: 35_000.0 - 100 * number,
        float,
        lambda number: 100_000.0 + 100 * number,
        lambda number: float(number % 10 * 1_000),
    ],
    ids=["large", "falls", "by a few", "by a small part", "up and down"],
)
def test_a_lag_that_does_not_grow_is_no_problem(lag: Callable[[int], float]) -> None:
    assert judge_group(group(over(30, lag))) is None


def test_a_group_that_reads_nothing_stands_still() -> None:
    lags, rates = over(20, lambda number: 300 * number), over(20, lambda _: 10.0)
    found = judge_group(group(lags, {"orders": (lags, rates)}))
    assert found is not None
    assert found.is_bad
    assert found.title == "Group readers stands still"
    assert "arrive in orders" in found.advice


def test_a_group_without_members_reads_nothing() -> None:
    lags, rates = over(20, lambda number: 300 * number), over(20, lambda _: 10.0)
    found = judge_group(group(lags, {"orders": (lags, rates)}, members=0))
    assert found is not None
    assert found.title == "Group readers reads nothing"
    assert "no members" in found.advice


@pytest.mark.parametrize(
    ("lag", "rate"),
    [
        (lambda number: 150 * number, 10.0),
        (lambda _: 500, 0.0),
        (lambda number: 300 * number - (900 if number == 18 else 0), 10.0),
    ],
    ids=["reads half", "nothing arrives", "committed once"],
)
def test_a_group_that_reads_or_has_nothing_to_read_does_not_stand_still(
    lag: Callable[[int], float], rate: float
) -> None:
    assert not stands_still(over(20, lag), over(20, lambda _: rate))


def test_arrivals_are_those_between_two_times() -> None:
    rates = over(10, lambda _: 2.0)
    assert arrivals(rates, BEGIN_MS, BEGIN_MS + 60_000) == 120
    assert arrivals(rates, BEGIN_MS + 15_000, BEGIN_MS + 45_000) == 60
    assert arrivals(Series(), 0, 1_000) == 0


# Produce time.


def test_a_produce_time_above_the_limit_is_told_with_the_usual_one() -> None:
    found = judge_produce_time(over(30, lambda number: 2_400.0 if number >= 15 else 12.0))
    assert found is not None
    assert "take 2.4 s at the 99th percentile" in found.title
    assert "Before, it was 12 ms" in found.advice


def test_the_limit_of_the_produce_time_may_be_another() -> None:
    samples = over(30, lambda _: 900.0)
    found = judge_produce_time(samples, 800)
    assert found is not None
    assert "The limit is 800 ms (--p99-limit)" in found.advice
    judged = [judge(Facts(produce_p99=samples, p99_limit_ms=limit_ms)) for limit_ms in (800, 900)]
    assert ["take 900 ms" in str(health.problems) for health in judged] == [True, False]


@pytest.mark.parametrize(
    "samples",
    [
        over(30, lambda _: 900.0),
        over(30, lambda number: 60_000.0 if number == 29 else 5.0),
        over(ENOUGH - 1, lambda _: 5_000.0),
        over(60, lambda number: 5_000.0 if number < 40 else None),
        Series(),
    ],
    ids=["below", "one spike", "too few", "over by now", "none"],
)
def test_a_produce_time_that_is_no_problem(samples: Series) -> None:
    assert judge_produce_time(samples) is None


# Transactions.


@pytest.mark.parametrize(
    ("age_s", "timeout_s", "usual_s", "why"),
    [
        (61, 60, 1, "Its timeout of 1 min is over"),
        (31, 60, 1, "more than half of its timeout"),
        (360, 900, 2, "usually below 2.0 s"),
    ],
)
def test_an_old_transaction(age_s: int, timeout_s: int, usual_s: int, why: str) -> None:
    row = OpenTransaction("pay", age_s * 1_000, timeout_s * 1_000)
    (found,) = judge_transactions([row], over(60, lambda _: usual_s * 1_000.0))
    assert found.title.startswith("The transaction of pay is open for ")
    assert why in found.advice
    assert found.link == "/transactions/one?id=pay"


@pytest.mark.parametrize(
    ("age_s", "timeout_s", "oldest"),
    [
        (9, 1, over(60, lambda _: 10.0)),
        (360, 900, over(60, lambda _: 200_000.0)),
        (360, 900, over(ENOUGH + 3, lambda _: 10.0)),
        (360, 900, Series()),
        (50, 900, over(60, lambda _: 10.0)),
    ],
    ids=["short", "usual", "too few before it", "no samples", "not yet"],
)
def test_a_transaction_of_a_usual_age(age_s: int, timeout_s: int, oldest: Series) -> None:
    assert not list(judge_transactions([OpenTransaction("pay", age_s * 1_000, timeout_s * 1_000)], oldest))


def test_further_old_transactions_are_counted() -> None:
    rows = [OpenTransaction(f"pay-{number}", 90_000, 60_000) for number in range(9)]
    found = list(judge_transactions(rows, Series()))
    assert len(found) == 6
    assert found[-1].title.startswith("4 further transactions")


def test_hanging_transactions_are_told() -> None:
    (found,) = judge_transactions([], Series(), hanging=1)
    assert found.title == "1 transaction hangs"
    assert found.command == "seqgate transactions find-hanging"
    assert not list(judge_transactions([], Series(), hanging=0))


# Disks.


def test_a_disk_that_fills_has_hours_left() -> None:
    free = over(60, lambda number: (600 - number) * 1e9, MINUTE_MS)
    full_ms = full_in_ms(free)
    assert full_ms is not None
    assert 9 * HOUR_MS <= full_ms <= 10 * HOUR_MS
    found = judge_disk("3", free)
    assert found is not None
    assert found.is_bad
    assert found.title.startswith("The disk of broker 3 is full in 9 h")


def test_a_disk_that_fills_slowly_warns() -> None:
    found = judge_disk("1", over(60, lambda number: (2_400 - number) * 1e9, MINUTE_MS))
    assert found is not None
    assert not found.is_bad


@pytest.mark.parametrize(
    "free",
    [
        lambda _: 5e9,
        lambda number: 5e9 + number * 1e8,
        lambda number: 1e12 - number * 1e6,
        lambda number: 9e9 - number % 20 * 1e8,
        lambda number: 9e12 - number * 1e9,
    ],
    ids=["steady", "grows", "noise", "saw teeth", "in months"],
)
def test_a_disk_that_does_not_fill_soon(free: Callable[[int], float]) -> None:
    assert judge_disk("1", over(60, free, MINUTE_MS)) is None


# All together.


def cluster(*brokers: BrokerStatus, **given: object) -> ClusterStatus:
    sound = ClusterStatus("id", 1, list(brokers), 1, 0, 1, [], [], {}, is_well=True)
    return msgspec.structs.replace(sound, **given)


def broker(error: str | None = None, directory: str | None = None) -> BrokerStatus:
    return BrokerStatus(1, "a:9092", None, error, [LogDir("/data", directory, 1, 2, 1)], {})


@pytest.mark.parametrize(
    ("status", "title"),
    [
        (cluster(broker("timed out")), "Broker 1 at a:9092 does not answer"),
        (cluster(broker(None, "failed")), "A log directory of broker 1 is out of service"),
        (cluster(controller=None), "The cluster has no controller"),
        (
            cluster(offline=[TroubledPartition("orders", 0, None, [1], [])]),
            "1 partition is out of service: orders-0",
        ),
        (
            cluster(under_replicated=[TroubledPartition("orders", 0, 1, [1, 2], [1])]),
            "1 partition is without all replicas in sync: orders-0",
        ),
    ],
)
def test_the_state_of_the_brokers(status: ClusterStatus, title: str) -> None:
    assert [found.title for found in problems_of_cluster(status)] == [title]


def test_a_broker_that_refuses_a_person_is_well() -> None:
    refused = "the log directories can't be listed: no (CLUSTER_AUTHORIZATION_FAILED)"
    assert not list(problems_of_cluster(cluster(broker(refused))))


def test_what_is_bad_comes_first_and_what_is_not_watched_is_named() -> None:
    lags = over(30, lambda number: 1_000 * number)
    health = judge(Facts(cluster(broker("gone")), groups=[group(lags)], transactions=[]))
    assert [type(found) for found in health.problems] == [Problem, Problem]
    assert [found.is_bad for found in health.problems] == [True, False]
    assert health.unjudged == ["the growth of the disk", "produce time", "what gateways report of themselves"]


async def test_a_problem_names_the_gateways_that_have_it(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        sound = await answer(node, StatusRequest())
    short = [msgspec.structs.replace(sound, node_id=number, is_disk_short=True) for number in (2, 4)]
    no_ids = msgspec.structs.replace(sound, node_id=3, producer_id_store_error="Redis is away")
    titles = [found.title for found in judge(Facts(gateways=[sound, *short, no_ids])).problems]
    full = "The disk is nearly full, and producers are refused"
    assert titles == [f"{full} on nodes 2, 4", "New producer ids can't be claimed on node 3"]
    assert [found.title for found in judge(Facts(gateways=short[:1])).problems] == [full]
    silent = judge(Facts(gateways=[sound], are_gateways_silent=True))
    assert "what gateways report of themselves" in silent.unjudged


def test_a_lag_without_samples_is_not_judged() -> None:
    assert "lag over time" in judge(Facts(groups=[GroupSamples("g", 35_000, 1, Series())])).unjudged
    assert "lag over time" not in judge(Facts(groups=[GroupSamples("g", 0, 1, Series())])).unjudged
    assert judge(Facts()).unjudged[0] == "lag over time"
