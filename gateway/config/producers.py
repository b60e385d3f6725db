"""Settings of producer ids, and of the producer state of partitions."""

from __future__ import annotations

from seqgate.gateway.config.setting import Section, Setting, SettingValue

_STATE = Section("Producer state")
_IDS = Section("Producer ids")

PRODUCER_SETTINGS = (
    _STATE.whole("producer.id.expiration.ms", 86400000, minimum=1, dynamic=True)(
        "Idle time after which a partition forgets a producer."
    ),
    _STATE.whole("producer.id.expiration.check.interval.ms", 600000, minimum=1, dynamic=True)(
        "Interval at which partitions forget idle producers. An altered interval counts from the last pass."
    ),
    _STATE.whole("seqgate.producer.retained.batches", 5, minimum=5, maximum=10000)(
        "Newest batches that a partition remembers of each producer. A retry of such a batch is answered "
        "with the offset of the original. Kafka remembers 5."
    ),
    _STATE.whole("seqgate.producer.max.per.partition", 100000, minimum=1, dynamic=True)(
        "Producers that one partition remembers. Beyond the limit the longest idle producer is evicted."
    ),
    _STATE.whole("seqgate.producer.max", 1000000, minimum=1, dynamic=True)(
        "Producers that all partitions remember together. Beyond the limit the longest idle producer is "
        "evicted."
    ),
    _STATE.whole("seqgate.producer.min.idle.ms", 900000, minimum=0, dynamic=True)(
        "Idle time before which a producer is never evicted. When no producer has been idle for so long, a "
        "new producer is refused instead, and may retry."
    ),
    _STATE.whole("seqgate.refused.batches.max", 100000, minimum=1)(
        "Refused batches that all connections remember together, one for each producer and partition, so "
        "that no later batch of the producer is stored first. Beyond the limit a connection forgets its "
        "oldest one, and keeps at least one."
    ),
    _IDS.whole("seqgate.producer.id.block.size", 1000, minimum=1, maximum=1000000000, dynamic=True)(
        "Producer ids in one block, which the gateway claims at once."
    ),
    _IDS.decimal("seqgate.producer.id.prefetch.ratio", 0.9, minimum=0.0, maximum=1.0, dynamic=True)(
        "Used share of a block at which the gateway claims the next block."
    ),
    _IDS.text("seqgate.producer.id.store", "embedded", choices=("embedded", "redis"))(
        "Store from which blocks of producer ids are claimed: the gateway's own metadata log (`embedded`), "
        "or a Redis that several gateways share (`redis`), which needs `pip install 'seqgate[redis]'`."
    ),
    _IDS.text(
        "seqgate.redis.url",
        "redis://127.0.0.1:6379/0",
        check=lambda value: (
            None
            if str(value).startswith(("redis://", "rediss://", "unix://"))
            else "the URL must begin with redis://, rediss:// or unix://"
        ),
        sensitive=True,
    )("URL of the Redis that the `redis` store uses."),
    _IDS.text("seqgate.redis.prefix", "seqgate:")(
        "Prefix of every key in Redis. Gateways that share producer ids have the same prefix."
    ),
    _IDS.whole("seqgate.redis.timeout.ms", 1000, minimum=1)(
        "Longest wait for a connection to Redis, and for each answer of Redis."
    ),
)


# Settings of transactions and of transactional ids.

_TRANSACTIONS = Section("Transactions")


TRANSACTION_SETTINGS = (
    _TRANSACTIONS.number("transaction.max.timeout.ms", 900_000)(
        "Longest transaction timeout that a producer may ask for."
    ),
    _TRANSACTIONS.number("transaction.abort.timed.out.transaction.cleanup.interval.ms", 10_000)(
        "Interval at which open transactions that have timed out are aborted."
    ),
    _TRANSACTIONS.number("transactional.id.expiration.ms", 604_800_000)(
        "Time after its last transaction for which a transactional id is remembered."
    ),
    _TRANSACTIONS.number("transaction.remove.expired.transaction.cleanup.interval.ms", 3_600_000)(
        "Interval at which expired transactional ids are forgotten."
    ),
    _TRANSACTIONS.switch("transaction.partition.verification.enable", True, dynamic=True)(
        "Whether a transactional batch is refused when its partition was not added to the open transaction. "
        "Applies to producers that add partitions themselves (before Produce v12)."
    ),
    _TRANSACTIONS.number("transaction.state.log.num.partitions", 50)(
        "Partitions that `__transaction_state` is created with."
    ),
    _TRANSACTIONS.number("transaction.state.log.segment.bytes", 104_857_600)(
        "Segment size of `__transaction_state`."
    ),
    _TRANSACTIONS.number("seqgate.transactional.id.max", 100_000, dynamic=True)(
        "Transactional ids that are remembered at once. A further transactional id is refused with "
        "POLICY_VIOLATION."
    ),
    _TRANSACTIONS.number("seqgate.transaction.partitions.max", 10_000, dynamic=True)(
        "Partitions that may take part in one transaction. A further partition is refused with "
        "POLICY_VIOLATION."
    ),
)


# Settings of backlog quotas and of message TTL.

_BACKLOG = Section("Backlog and message TTL")


NO_LIMIT = -1
HOLD = "producer_request_hold"
REFUSE = "producer_exception"
EVICT = "consumer_backlog_eviction"
POLICIES = (HOLD, REFUSE, EVICT)


def _not_zero(value: SettingValue) -> str | None:
    return "0 would allow no unread record; -1 sets no limit" if value == 0 else None


def _limit(name: str, doc: str) -> Setting:
    return _BACKLOG.long(
        f"seqgate.{name}", NO_LIMIT, topic_name=name, minimum=NO_LIMIT, check=_not_zero, dynamic=True
    )(doc)


BACKLOG_SETTINGS = (
    _limit(
        "backlog.quota.bytes",
        "Bytes of a partition that its slowest group may leave unread; -1 for no limit. See docs/backlog.md.",
    ),
    _limit(
        "backlog.quota.ms",
        "Age that the first unread record of a partition's slowest group may reach; -1 for no limit.",
    ),
    _BACKLOG.text(
        "seqgate.backlog.quota.policy",
        HOLD,
        topic_name="backlog.quota.policy",
        choices=POLICIES,
        dynamic=True,
    )(
        f"Effect of an exceeded backlog quota. `{HOLD}`: producers wait for their answers. `{REFUSE}`: "
        f"producers are refused with a retriable error. `{EVICT}`: slow groups are moved forward. The names "
        "are those of Apache Pulsar."
    ),
    _limit(
        "message.ttl.ms",
        "Age at which groups are moved forward past unread records; -1 for never. The records stay until "
        "retention deletes them.",
    ),
    _BACKLOG.number("seqgate.backlog.check.interval.ms", 1_000, dynamic=True)(
        "Interval at which the gateway measures the backlogs of topics with a quota or a TTL."
    ),
    _BACKLOG.number("seqgate.backlog.hold.max.ms", 60_000, dynamic=True)(
        "Longest time that a Produce request waits for a backlog to shrink. A request waits for at most "
        "nine tenths of its own timeout. Then it is refused."
    ),
    _BACKLOG.number("seqgate.backlog.hold.max.requests", 1_000, minimum=0, dynamic=True)(
        "Produce requests that wait at the same time. A further request is refused."
    ),
    _BACKLOG.number("seqgate.backlog.hold.max.bytes", 33_554_432, minimum=0, dynamic=True)(
        "Bytes of the Produce requests that wait. A further request is refused. Waiting requests count "
        "towards queued.max.request.bytes."
    ),
)
