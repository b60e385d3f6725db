"""Settings of producer ids, and of the producer state of partitions."""

from __future__ import annotations

from gateway.config.setting import Setting, SettingType

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
        doc="Interval at which partitions forget idle producers. An altered interval counts from the last pass.",
    ),
    Setting(
        name="seqgate.producer.retained.batches",
        type=SettingType.INT,
        default=5,
        minimum=5,
        maximum=10000,
        section=_STATE,
        doc="Newest batches that a partition remembers of each producer. A retry of such a batch is answered with the offset of "
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
        doc="Producers that all partitions remember together. Beyond the limit the longest idle producer is evicted.",
    ),
    Setting(
        name="seqgate.producer.min.idle.ms",
        type=SettingType.INT,
        default=900000,
        minimum=0,
        dynamic=True,
        section=_STATE,
        doc="Idle time before which a producer is never evicted. When no producer has been idle for so long, a new producer is "
        "refused instead, and may retry.",
    ),
    Setting(
        name="seqgate.refused.batches.max",
        type=SettingType.INT,
        default=100000,
        minimum=1,
        section=_STATE,
        doc="Refused batches that all connections remember together, one for each producer and partition, so that no later batch of "
        "the producer is stored first. Beyond the limit a connection forgets its oldest one, and keeps at least one.",
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
        doc="Store from which blocks of producer ids are claimed: the gateway's own metadata log (`embedded`), or a Redis that "
        "several gateways share (`redis`).",
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
