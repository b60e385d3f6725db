"""The history of what the console samples: as sampled, in minutes, within its limits."""

from __future__ import annotations

from seqgate.gateway.console.metrics.history import (
    DAY_MS,
    HOUR_MS,
    LAG,
    LONGEST_NAME,
    MINUTE_MS,
    MOST_POINTS,
    MOST_WRITTEN,
    QUARTER_MS,
    TOPIC_RECORDS,
    History,
    key_of,
)

BEGIN = 1_795_847_040_000
"""The beginning of a minute."""
STEP = 5_000
GROUP = {"group": "g"}
TOPIC = {"topic": "t"}


def sampled(values: dict[int, float | None], history: History | None = None, metric: str = LAG) -> History:
    """Return a history with a value at each time after BEGIN."""
    history = history or History()
    labels = GROUP if metric == LAG else TOPIC
    for after_ms, value in values.items():
        history.add(BEGIN + after_ms, {key_of(metric, labels): value})
    return history


def test_the_newest_quarter_is_shown_as_it_was_sampled() -> None:
    history = sampled({0: 1, STEP: None, 2 * STEP: 3})
    assert history.series(LAG, GROUP, QUARTER_MS) == ([BEGIN, BEGIN + STEP, BEGIN + 2 * STEP], [1, None, 3])
    assert history.last(LAG, GROUP) == 3
    assert history.last(LAG, {"group": "other"}) is None
    assert history.labels_of(LAG) == [GROUP]


def test_a_longer_range_has_a_point_each_minute_and_one_for_the_minute_that_runs() -> None:
    values = {after: after / STEP for after in range(0, 2 * MINUTE_MS + STEP, STEP)}
    lags = sampled(values).series(LAG, GROUP, HOUR_MS)
    assert lags == ([BEGIN, BEGIN + MINUTE_MS, BEGIN + 2 * MINUTE_MS], [11, 23, 24])
    rates = sampled(values, metric=TOPIC_RECORDS).series(TOPIC_RECORDS, TOPIC, HOUR_MS)
    assert rates.values == [5.5, 17.5, 24], "a rate has its mean, a lag its highest value"


def test_a_day_is_kept_and_older_points_and_series_go() -> None:
    history = sampled({0: 7})
    for minute in range(1, 3 * DAY_MS // MINUTE_MS // 2):
        history.add(BEGIN + minute * MINUTE_MS, {key_of(TOPIC_RECORDS, TOPIC): 1})
    times, values = history.series(TOPIC_RECORDS, TOPIC, 2 * DAY_MS)
    assert len(times) == DAY_MS // MINUTE_MS + 2
    assert set(values) == {1}
    assert len(history.series(TOPIC_RECORDS, TOPIC, QUARTER_MS).times) == 16
    assert history.labels_of(LAG) == []


def test_a_time_without_samples_is_a_gap() -> None:
    history = sampled({0: 1, HOUR_MS // 2: 2})
    times, values = history.series(LAG, GROUP, HOUR_MS)
    assert values == [1, None, 2]
    assert times == [BEGIN, BEGIN + MINUTE_MS, BEGIN + HOUR_MS // 2]


def test_a_clock_that_is_set_back_drops_what_it_has_not_reached() -> None:
    history = sampled({0: 1, 10 * MINUTE_MS: 2, 2 * MINUTE_MS: 3})
    assert history.series(LAG, GROUP, QUARTER_MS) == ([BEGIN, BEGIN + 2 * MINUTE_MS], [1, 3])
    assert history.series(LAG, GROUP, HOUR_MS).values == [1, 3]


def test_series_points_names_and_topics_are_bounded() -> None:
    history = History(most_series=2)
    names = [{"group": name} for name in ("a", "b", "c")]
    history.add(BEGIN, {key_of(LAG, labels): 1 for labels in names})
    assert history.labels_of(LAG) == names[:2]
    history.add(BEGIN + QUARTER_MS - 1, {key_of(LAG, names[1]): 1, key_of(LAG, names[2]): 1})
    assert history.labels_of(LAG) == names[:2]
    history.add(BEGIN + QUARTER_MS, {key_of(LAG, names[1]): 1, key_of(LAG, names[2]): 1})
    assert history.labels_of(LAG) == names[1:], "the one without a value for longest goes"
    history.add(BEGIN - QUARTER_MS, {key_of(LAG, names[1]): 1})
    history.add(BEGIN - 1, {key_of(LAG, names[1]): 1})
    history.add(BEGIN, {key_of(LAG, names[1]): 1, key_of(LAG, names[0]): 1})
    assert history.labels_of(LAG) == names[1::-1], "also after the clock was set back"
    roomy = History()
    roomy.add(BEGIN, {key_of(LAG, {"group": "x" * LONGEST_NAME}): 1})
    assert roomy.labels_of(LAG) == []
    for number in range(MOST_POINTS + 10):
        roomy.add(BEGIN + number, {key_of(LAG, GROUP): number})
    assert len(roomy.series(LAG, GROUP, QUARTER_MS).times) == MOST_POINTS
    for number in range(MOST_WRITTEN + 1):
        roomy.wrote(str(number), number)
    assert (roomy.last_write_ms("0"), roomy.last_write_ms("1")) == (None, 1)


def test_what_is_no_number_is_left_out() -> None:
    history = sampled({0: float("nan"), STEP: float("inf"), 2 * STEP: 4})
    assert history.series(LAG, GROUP, QUARTER_MS).values == [None, None, 4]
