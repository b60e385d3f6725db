"""Settings of producer ids, and of the producer state of partitions."""

from __future__ import annotations

from functools import partial

from seqgate.gateway.config.setting import Setting, SettingType, SettingValue, whole_number

_STATE = "Producer state"
_IDS = "Producer ids"

PRODUCER_SETTINGS = (
    Setting(
        name="producer.id.expiration.ms",
        type=SettingType.INT,
        default=86400000,
        minimum=1,
        dynamic=True,
        section=_STATE,
        doc="Idle time after which a partition forgets a producer.",
    ),
    Setting(
        name="producer.id.expiration.check.interval.ms",
        type=SettingType.INT,
        default=600000,
        minimum=1,
        dynamic=True,
        section=_STATE,
        doc="Interval at which partitions forget idle producers. An altered interval counts from the last "
        "pass.",
    ),
    Setting(
        name="seqgate.producer.retained.batches",
        type=SettingType.INT,
        default=5,
        minimum=5,
        maximum=10000,
        section=_STATE,
        doc="Newest batches that a partition remembers of each producer. A retry of such a batch is answered "
        "with the offset of "
        "the original. Kafka remembers 5.",
    ),
    Setting(
        name="seqgate.producer.max.per.partition",
        type=SettingType.INT,
        default=100000,
        minimum=1,
        dynamic=True,
        section=_STATE,
        doc="Producers that one partition remembers. Beyond the limit the longest idle producer is evicted.",
    ),
    Setting(
        name="seqgate.producer.max",
        type=SettingType.INT,
        default=1000000,
        minimum=1,
        dynamic=True,
        section=_STATE,
        doc="Producers that all partitions remember together. Beyond the limit the longest idle producer is "
        "evicted.",
    ),
    Setting(
        name="seqgate.producer.min.idle.ms",
        type=SettingType.INT,
        default=900000,
        minimum=0,
        dynamic=True,
        section=_STATE,
        doc="Idle time before which a producer is never evicted. When no producer has been idle for so long, "
        "a new producer is "
        "refused instead, and may retry.",
    ),
    Setting(
        name="seqgate.refused.batches.max",
        type=SettingType.INT,
        default=100000,
        minimum=1,
        section=_STATE,
        doc="Refused batches that all connections remember together, one for each producer and partition, so "
        "that no later batch of "
        "the producer is stored first. Beyond the limit a connection forgets its oldest one, and keeps at "
        "least one.",
    ),
    Setting(
        name="seqgate.producer.id.block.size",
        type=SettingType.INT,
        default=1000,
        minimum=1,
        maximum=1000000000,
        dynamic=True,
        section=_IDS,
        doc="Producer ids in one block, which the gateway claims at once.",
    ),
    Setting(
        name="seqgate.producer.id.prefetch.ratio",
        type=SettingType.DOUBLE,
        default=0.9,
        minimum=0.0,
        maximum=1.0,
        dynamic=True,
        section=_IDS,
        doc="Used share of a block at which the gateway claims the next block.",
    ),
    Setting(
        name="seqgate.producer.id.store",
        type=SettingType.STRING,
        default="embedded",
        choices=("embedded", "redis"),
        section=_IDS,
        doc="Store from which blocks of producer ids are claimed: the gateway's own metadata log "
        "(`embedded`), or a Redis that "
        "several gateways share (`redis`), which needs `pip install 'seqgate[redis]'`.",
    ),
    Setting(
        name="seqgate.redis.url",
        type=SettingType.STRING,
        default="redis://127.0.0.1:6379/0",
        sensitive=True,
        section=_IDS,
        check=lambda value: (
            None
            if str(value).startswith(("redis://", "rediss://", "unix://"))
            else "the URL must begin with redis://, rediss:// or unix://"
        ),
        doc="URL of the Redis that the `redis` store uses.",
    ),
    Setting(
        name="seqgate.redis.prefix",
        type=SettingType.STRING,
        default="seqgate:",
        section=_IDS,
        doc="Prefix of every key in Redis. Gateways that share producer ids have the same prefix.",
    ),
    Setting(
        name="seqgate.redis.timeout.ms",
        type=SettingType.INT,
        default=1000,
        minimum=1,
        section=_IDS,
        doc="Longest wait for a connection to Redis, and for each answer of Redis.",
    ),
)


# Settings of transactions and of transactional ids.

_TRANSACTIONS = "Transactions"
_number = partial(whole_number, _TRANSACTIONS)

TRANSACTION_SETTINGS = (
    _number(
        "transaction.max.timeout.ms",
        900_000,
        "Longest transaction timeout that a producer may ask for.",
    ),
    _number(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        "Interval at which open transactions that have timed out are aborted.",
    ),
    _number(
        "transactional.id.expiration.ms",
        604_800_000,
        "Time after its last transaction for which a transactional id is remembered.",
    ),
    _number(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        "Interval at which expired transactional ids are forgotten.",
    ),
    Setting(
        name="transaction.partition.verification.enable",
        type=SettingType.BOOLEAN,
        default=True,
        dynamic=True,
        section=_TRANSACTIONS,
        doc="Whether a transactional batch is refused when its partition was not added to the open "
        "transaction. Applies to "
        "producers that add partitions themselves (before Produce v12).",
    ),
    _number(
        "transaction.state.log.num.partitions",
        50,
        "Partitions that `__transaction_state` is created with.",
    ),
    _number(
        "transaction.state.log.segment.bytes",
        104_857_600,
        "Segment size of `__transaction_state`.",
    ),
    _number(
        "seqgate.transactional.id.max",
        100_000,
        "Transactional ids that are remembered at once. A further transactional id is refused with "
        "POLICY_VIOLATION.",
        dynamic=True,
    ),
    _number(
        "seqgate.transaction.partitions.max",
        10_000,
        "Partitions that may take part in one transaction. A further partition is refused with "
        "POLICY_VIOLATION.",
        dynamic=True,
    ),
)


# Settings of backlog quotas and of message TTL.

_SECTION = "Backlog and message TTL"
_number_backlog = partial(whole_number, _SECTION)

NO_LIMIT = -1
HOLD = "producer_request_hold"
REFUSE = "producer_exception"
EVICT = "consumer_backlog_eviction"
POLICIES = (HOLD, REFUSE, EVICT)


def _not_zero(value: SettingValue) -> str | None:
    return "0 would allow no unread record; -1 sets no limit" if value == 0 else None


def _limit(name: str, doc: str) -> Setting:
    return Setting(
        name=f"seqgate.{name}",
        topic_name=name,
        type=SettingType.LONG,
        default=NO_LIMIT,
        minimum=NO_LIMIT,
        dynamic=True,
        check=_not_zero,
        section=_SECTION,
        doc=doc,
    )


BACKLOG_SETTINGS = (
    _limit(
        "backlog.quota.bytes",
        "Bytes of a partition that its slowest group may leave unread; -1 for no limit. See docs/backlog.md.",
    ),
    _limit(
        "backlog.quota.ms",
        "Age that the first unread record of a partition's slowest group may reach; -1 for no limit.",
    ),
    Setting(
        name="seqgate.backlog.quota.policy",
        topic_name="backlog.quota.policy",
        type=SettingType.STRING,
        default=HOLD,
        choices=POLICIES,
        dynamic=True,
        section=_SECTION,
        doc=f"Effect of an exceeded backlog quota. `{HOLD}`: producers wait for their answers. `{REFUSE}`: "
        "producers are refused "
        f"with a retriable error. `{EVICT}`: slow groups are moved forward. The names are those of Apache "
        "Pulsar.",
    ),
    _limit(
        "message.ttl.ms",
        "Age at which groups are moved forward past unread records; -1 for never. The records stay until "
        "retention deletes them.",
    ),
    _number_backlog(
        "seqgate.backlog.check.interval.ms",
        1_000,
        "Interval at which the gateway measures the backlogs of topics with a quota or a TTL.",
        dynamic=True,
    ),
    _number_backlog(
        "seqgate.backlog.hold.max.ms",
        60_000,
        "Longest time that a Produce request waits for a backlog to shrink. A request waits for at most nine "
        "tenths of its own "
        "timeout. Then it is refused.",
        dynamic=True,
    ),
    _number_backlog(
        "seqgate.backlog.hold.max.requests",
        1_000,
        "Produce requests that wait at the same time. A further request is refused.",
        minimum=0,
        dynamic=True,
    ),
    _number_backlog(
        "seqgate.backlog.hold.max.bytes",
        33_554_432,
        "Bytes of the Produce requests that wait. A further request is refused. Waiting requests count "
        "towards "
        "queued.max.request.bytes.",
        minimum=0,
        dynamic=True,
    ),
)
