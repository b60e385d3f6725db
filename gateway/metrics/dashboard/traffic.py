"""The rows that show what clients do: the overview, throughput, latency, producers, groups and transactions."""

from __future__ import annotations

from typing import Final

from gateway.metrics.dashboard.panels import (
    Row,
    each_second,
    lines,
    now,
    number,
    over_all,
    quantile,
    raw,
    selected,
    table,
)
from gateway.metrics.subjects import (
    clients,
    groups,
    limits,
    node,
    producers,
    requests,
    storage,
    topics,
    transactions,
)

_PRODUCE: Final = 'api="Produce"'
_FETCH: Final = 'api="Fetch"'
_OF_LIMIT: Final = f"{selected(limits.USED)} / on (instance, setting) {selected(limits.MOST)}"

OVERVIEW: Final = Row(
    "Overview: what is wrong",
    (
        number(
            "Gateways that do not answer",
            raw('count(up{instance=~"$instance"} == 0) or vector(0)', "down"),
            bad_from=1,
        ),
        number(
            "Gateways that are not ready",
            raw(f"count({selected(node.READY)} == 0) or vector(0)", "not ready", node.READY),
            bad_from=1,
        ),
        number("Offline partitions", over_all("sum", topics.OFFLINE), bad_from=1),
        number("Disks that are short", over_all("sum", storage.SHORT), bad_from=1),
        number(
            "Damaged or cut stretches",
            raw(
                f"sum({selected(storage.DAMAGED)}) + sum({selected(storage.CUT)})",
                "stretches",
                storage.DAMAGED,
                storage.CUT,
            ),
            bad_from=1,
        ),
        number("Flushes that failed", over_all("sum", storage.FLUSH_FAILURES), bad_from=1),
        number(
            "Refused batches, last hour",
            raw(
                f"sum(increase({selected(producers.REFUSED_BATCHES)}[1h])) or vector(0)",
                "refused",
                producers.REFUSED_BATCHES,
            ),
            bad_from=1,
        ),
        number("Largest lag", over_all("max", groups.LAG), bad_from=100_000),
        number("Oldest transaction", over_all("max", transactions.OLDEST), unit="s", bad_from=600),
        number(
            "Nearest limit",
            raw(f"max({_OF_LIMIT})", "used", limits.USED, limits.MOST),
            unit="percentunit",
            bad_from=0.9,
        ),
        number("Fewest producer ids left", over_all("min", producers.IDS_LEFT), bad_from=50, is_low_bad=True),
        number(
            "First certificate expires in",
            raw(f"min({selected(node.CERTIFICATE)}) - time()", "certificate", node.CERTIFICATE),
            unit="s",
            bad_from=14 * 86_400,
            is_low_bad=True,
        ),
        table(
            "Alerts",
            raw('ALERTS{alertname=~"Seqgate.*", alertstate="firing"}', "{{alertname}} {{instance}}"),
            width=16,
            note="The alerts of deploy/prometheus/alerts.yml that fire now. docs/observability.md says what to do.",
        ),
        table("Gateways", raw(selected(node.NODE), "{{instance}}", node.NODE), width=8),
    ),
    is_folded=False,
)

THROUGHPUT: Final = Row(
    "Throughput",
    (
        lines("Records in", each_second(topics.RECORDS, "topic"), unit="ops", is_stacked=True),
        lines("Bytes in", each_second(topics.BYTES, "topic"), unit="Bps", is_stacked=True),
        lines("Bytes out", each_second(topics.FETCHED, "topic"), unit="Bps", is_stacked=True),
        lines("Requests", each_second(requests.REQUESTS, "api"), unit="reqps", is_stacked=True),
        lines("Connections", now(requests.CONNECTIONS)),
        lines(
            "Refused clients",
            each_second(requests.REFUSED_CONNECTIONS, legend="refused connections"),
            each_second(requests.FAILED_LOGINS, legend="failed logins"),
            each_second(requests.DROPPED_READERS, legend="dropped readers"),
            unit="ops",
        ),
        lines("Size of logs", now(topics.SIZE, "topic"), unit="bytes", is_stacked=True),
        lines("Open partitions", now(topics.OPEN, "topic"), is_stacked=True),
        lines(
            "Topics and partitions",
            now(topics.TOPICS, legend="topics"),
            now(topics.PARTITIONS, legend="partitions"),
            now(topics.LED, legend="led here"),
            now(topics.OFFLINE, legend="offline"),
        ),
    ),
    is_folded=False,
)

LATENCY: Final = Row(
    "Latency",
    (
        lines(
            "Produce",
            *(quantile(share, requests.DURATION, where=_PRODUCE) for share in (0.5, 0.99, 0.999)),
            unit="s",
        ),
        lines(
            "Fetch",
            *(quantile(share, requests.DURATION, where=_FETCH) for share in (0.5, 0.99)),
            unit="s",
            note="A Fetch waits for records up to fetch.max.wait.ms of its client, so its time tells little while no records come.",
        ),
        lines(
            "Other requests, p99",
            quantile(0.99, requests.DURATION, "api", where='api!~"Produce|Fetch"'),
            unit="s",
        ),
        lines("Append", *(quantile(share, storage.APPEND) for share in (0.5, 0.99)), unit="s"),
        lines("Flush round", *(quantile(share, storage.FLUSH) for share in (0.5, 0.99)), unit="s"),
        lines("Delay of the event loop", *(quantile(share, node.DELAY) for share in (0.5, 0.99)), unit="s"),
    ),
    is_folded=False,
)

PRODUCERS: Final = Row(
    "Producers and sequences",
    (
        lines("Refused batches by error", each_second(producers.REFUSED_BATCHES, "error"), unit="ops"),
        lines("Duplicate batches", each_second(producers.DUPLICATES), unit="ops"),
        lines("Known producers", now(producers.KNOWN)),
        lines(
            "Producers that came to a limit",
            each_second(producers.EVICTED, legend="evicted"),
            each_second(producers.EXPIRED, legend="expired"),
            each_second(producers.REFUSED, legend="refused"),
            unit="ops",
        ),
        lines("Producer names", now(producers.NAMES)),
        lines(
            "Deduplication by name",
            each_second(producers.NAMES_DROPPED, legend="records dropped"),
            each_second(producers.NAMES_EVICTED, legend="names evicted"),
            each_second(producers.NAMES_EXPIRED, legend="names expired"),
            each_second(producers.NAMES_REFUSED, legend="names refused"),
            unit="ops",
        ),
    ),
)

PRODUCER_IDS: Final = Row(
    "Producer ids",
    (
        lines(
            "Ids left",
            now(producers.IDS_LEFT, legend="left"),
            now(producers.BLOCK_SIZE, legend="a block"),
        ),
        lines("Claimed blocks", now(producers.BLOCKS)),
        lines("Failed claims", each_second(producers.FAILED_CLAIMS), unit="ops"),
    ),
)

GROUPS: Final = Row(
    "Groups and lag",
    (
        lines("Lag", now(groups.LAG, "group"), width=16),
        lines("Groups", now(groups.GROUPS, "type", "state"), is_stacked=True),
        lines(
            "Members",
            now(groups.MEMBERS, legend="members"),
            now(groups.SHARE_SESSIONS, legend="share sessions"),
        ),
        lines("Committed offsets", now(groups.OFFSETS)),
        lines("Delayed records", now(topics.WAITING)),
        lines("Partitions over a backlog quota", now(topics.REFUSING)),
        lines("Requests that wait for a backlog", now(groups.HELD)),
        lines("Bytes that wait for a backlog", now(groups.HELD_BYTES), unit="bytes"),
        lines("Requests that waited in vain", each_second(groups.HELD_TIMED_OUT), unit="ops"),
    ),
)

TRANSACTIONS: Final = Row(
    "Transactions",
    (
        lines("Oldest open transaction", now(transactions.OLDEST), unit="s"),
        lines(
            "Transactions",
            now(transactions.OPEN, legend="open"),
            now(transactions.ENDING, legend="ending"),
        ),
        lines("Transactional ids", now(transactions.IDS)),
        lines("Timed-out transactions", each_second(transactions.TIMED_OUT), unit="ops"),
    ),
)

CLIENTS: Final = Row(
    "Metrics of clients",
    (
        lines(
            "Clients and series",
            now(clients.CLIENTS, legend="clients"),
            now(clients.SERIES, legend="series"),
            note="What clients push comes out as kafka_client_... and client_... (docs/client-metrics.md).",
        ),
        lines(
            "Pushes",
            each_second(clients.PUSHES, legend="accepted"),
            each_second(clients.REFUSED, "error"),
            each_second(clients.DROPPED, legend="dropped points"),
            unit="ops",
        ),
    ),
)

ROWS: Final = (OVERVIEW, THROUGHPUT, LATENCY, PRODUCERS, PRODUCER_IDS, GROUPS, TRANSACTIONS, CLIENTS)
