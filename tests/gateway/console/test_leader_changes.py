"""The changes of leaders that the console has seen."""

from __future__ import annotations

from seqgate.gateway.console.asking.connections import Leader
from seqgate.gateway.console.metrics.rates import LeaderChanges, MovesSummary

PLACES = [("orders", index) for index in range(5)]


def test_a_failover_of_many_partitions_is_one_line() -> None:
    changes = LeaderChanges()
    changes.see(1, {place: Leader(1, 0) for place in PLACES})
    changes.see(2, {place: Leader(1, 0) for place in PLACES})
    changes.see(3, {place: Leader(2, 1) for place in PLACES[:4]} | {PLACES[4]: Leader(-1, 1)})
    assert changes.summaries(PLACES, 9) == [
        MovesSummary(3, 1, -1, 1, (PLACES[4],)),
        MovesSummary(3, 1, 2, 4, tuple(PLACES[:3])),
    ]


def test_a_new_epoch_of_the_same_leader_counts_and_a_new_topic_does_not() -> None:
    changes = LeaderChanges()
    changes.see(1, {PLACES[0]: Leader(1, 7), PLACES[1]: Leader(1, 7)})
    changes.see(2, {PLACES[0]: Leader(1, 8), PLACES[1]: Leader(2, 0)})
    assert changes.summaries(PLACES, 9) == [MovesSummary(2, 1, 1, 1, (PLACES[0],))]


def test_nobody_sees_the_topics_of_others() -> None:
    changes = LeaderChanges()
    changes.see(1, {PLACES[0]: Leader(1, 0), ("secret", 0): Leader(1, 0)})
    changes.see(2, {PLACES[0]: Leader(2, 1)})
    changes.see(3, {("secret", 0): Leader(2, 1)})
    assert [summary.time_ms for summary in changes.summaries({PLACES[0]}, 9)] == [2]
    assert len(changes.summaries({PLACES[0], ("secret", 0)}, 1)) == 1
