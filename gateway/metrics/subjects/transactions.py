"""Transactions that this gateway coordinates."""

from __future__ import annotations

from typing import Final

from gateway.metrics.metric import Samples, Sources, Subject, counter, gauge

IDS: Final = gauge("seqgate_transactional_ids", "Transactional ids that this gateway coordinates.")
OPEN: Final = gauge("seqgate_transactions_open", "Transactions that are open.")
ENDING: Final = gauge(
    "seqgate_transactions_ending",
    "Transactions that are decided and still wait for markers in their partitions.",
)
OLDEST: Final = gauge(
    "seqgate_transactions_oldest_seconds",
    "Age of the longest open transaction; readers of committed records wait for its end. 0 without one.",
)
TIMED_OUT: Final = counter(
    "seqgate_transactions_timed_out_total", "Transactions aborted because they were open too long."
)


def _read(sources: Sources) -> Samples:
    coordinator = sources.services.coordinators.transactions
    now_ms = sources.services.node.clock.now_ms()
    ids = open_count = ending = 0
    oldest_ms = now_ms
    for loaded in coordinator.shards:
        shard = loaded.shard
        ids += len(shard.transactions)
        open_count += len(shard.open)
        ending += len(shard.decided)
        for transactional_id in list(shard.open):
            transaction = shard.transactions.get(transactional_id)
            if transaction is not None:
                oldest_ms = min(oldest_ms, transaction.start_ms)
            yield None
    yield IDS.at(ids)
    yield OPEN.at(open_count)
    yield ENDING.at(ending)
    yield OLDEST.at((now_ms - oldest_ms) / 1000)
    yield TIMED_OUT.at(coordinator.endings.timed_out)


SUBJECT: Final = Subject("Transactions", (IDS, OPEN, ENDING, OLDEST, TIMED_OUT), _read)
