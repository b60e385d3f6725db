"""Settings of producer ids and of the producer state of each partition."""

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
        doc="A partition forgets a producer that wrote nothing for so long.",
    ),
    Setting(
        name="producer.id.expiration.check.interval.ms",
        type=SettingType.INT,
        default=600000,
        minimum=1,
        dynamic=True,
        section=_STATE,
        doc="How often idle producers are looked for. An altered interval counts from the last time.",
    ),
    Setting(
        name="seqgate.producer.retained.batches",
        type=SettingType.INT,
        default=5,
        minimum=5,
        maximum=10000,
        section=_STATE,
        doc="Last batches kept of each producer and partition; a repeat of any of them is answered with its first offset. "
        "Kafka keeps 5.",
    ),
    Setting(
        name="seqgate.producer.max.per.partition",
        type=SettingType.INT,
        default=100000,
        minimum=1,
        dynamic=True,
        section=_STATE,
        doc="Producers one partition remembers; beyond it the longest idle one is forgotten first.",
    ),
    Setting(
        name="seqgate.producer.max",
        type=SettingType.INT,
        default=1000000,
        minimum=1,
        dynamic=True,
        section=_STATE,
        doc="Producers all partitions remember together; beyond it the longest idle one is forgotten first.",
    ),
    Setting(
        name="seqgate.producer.min.idle.ms",
        type=SettingType.INT,
        default=900000,
        minimum=0,
        dynamic=True,
        section=_STATE,
        doc="A producer active within this time is never forgotten; a new producer is refused instead, and may retry.",
    ),
    Setting(
        name="seqgate.producer.id.block.size",
        type=SettingType.INT,
        default=1000,
        minimum=1,
        maximum=1000000000,
        dynamic=True,
        section=_IDS,
        doc="Producer ids claimed from the store at once.",
    ),
    Setting(
        name="seqgate.producer.id.prefetch.ratio",
        type=SettingType.DOUBLE,
        default=0.9,
        minimum=0.0,
        maximum=1.0,
        dynamic=True,
        section=_IDS,
        doc="Share of a block after which the next one is claimed ahead of need.",
    ),
    Setting(
        name="seqgate.producer.id.store",
        type=SettingType.STRING,
        default="embedded",
        choices=("embedded", "redis"),
        section=_IDS,
        doc="Where blocks of producer ids are claimed: in the gateway's own metadata log, or in a Redis that several "
        "gateways share.",
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
            else "it must begin with redis://, rediss:// or unix://"
        ),
        doc="The Redis of the `redis` store.",
    ),
    Setting(
        name="seqgate.redis.prefix",
        type=SettingType.STRING,
        default="seqgate:",
        section=_IDS,
        doc="Beginning of every key in Redis; gateways that share ids share the prefix.",
    ),
    Setting(
        name="seqgate.redis.timeout.ms",
        type=SettingType.INT,
        default=1000,
        minimum=1,
        section=_IDS,
        doc="Longest wait for a connection to Redis and for each of its answers.",
    ),
)
