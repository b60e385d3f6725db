"""Settings of producers: what partitions track of them, their ids, transactions, deduplication by name."""

from __future__ import annotations

from collections.abc import Callable

from seqgate.gateway.config.setting import LONG_MAX, Section, Setting, SettingValue, header_complaint

_STATE = Section("Producer state")
_IDS = Section("Producer ids")
_TRANSACTIONS = Section("Transactions")
_DEDUPLICATION = Section("Deduplication by name")
_OF_TOPICS = Section(_DEDUPLICATION.title, "log.", dynamic=True)


def _expiration_complaint(value: SettingValue) -> str | None:
    return "0 would expire every name at once; -1 expires no name" if value == 0 else None


def _header(what: str, default: str) -> Callable[[str], Setting]:
    """Begin the setting of the record header that holds a part of the name."""
    return _OF_TOPICS.text(f"log.message.deduplication.{what}.header", default, check=header_complaint(1))


PRODUCER_SETTINGS = (
    # Deduplication: an application sends a producer name and a sequence id in the headers of each record.
    _OF_TOPICS.switch("log.message.deduplication.enable", False)(
        "Whether records with a producer name and a sequence id are stored once. A record whose sequence id "
        "is not above the highest sequence id of its name in the partition is acknowledged and not stored. "
        "See `seqgate help deduplication`."
    ),
    _header("name", "dedup.name")("Record header that holds the producer name."),
    _header("sequence", "dedup.sequence")("Record header that holds the sequence id, as decimal text."),
    _header("epoch", "dedup.epoch")(
        "Record header that may hold the name epoch, as decimal text. Once a name has come with an epoch, "
        "records of the name with a lower epoch, or without an epoch, are refused with PRODUCER_FENCED."
    ),
    _OF_TOPICS.text("log.message.deduplication.start", "latest", choices=("latest", "earliest"))(
        "Records whose names a partition tracks when deduplication is enabled for the first time: only "
        "later records (latest), or also the records that the partition already holds (earliest), which are "
        "read then."
    ),
    _OF_TOPICS.number("log.message.deduplication.names.max", 10_000)(
        "Producer names that are tracked of one topic. Beyond the limit the longest idle name is evicted "
        "if it has been idle for seqgate.deduplication.min.idle.ms. Otherwise a batch with a new name is "
        "refused with NOT_ENOUGH_REPLICAS, which producers retry."
    ),
    _OF_TOPICS.long(
        "log.message.deduplication.expiration.ms",
        604_800_000,
        minimum=-1,
        maximum=LONG_MAX,
        check=_expiration_complaint,
    )("Idle time after which a producer name expires; -1 for never."),
    _DEDUPLICATION.number("seqgate.deduplication.names.max", 250_000)(
        "Producer names that are tracked over all partitions; a name counts once per partition, and "
        "takes 0.6 to 1 KiB of memory, by its length. Beyond the limit idle names of the new name's topic "
        "are evicted; without an idle name the batch is refused."
    ),
    _DEDUPLICATION.number("seqgate.deduplication.min.idle.ms", 3_600_000)(
        "Idle time before which a producer name is never evicted for a new name."
    ),
    _DEDUPLICATION.number("seqgate.deduplication.name.max.bytes", 256, maximum=32_767)(
        "Bytes of the longest producer name. A batch with a longer name is refused with INVALID_RECORD."
    ),
    _DEDUPLICATION.number("seqgate.deduplication.snapshot.records", 100_000)(
        "Records with a producer name after which the names of a partition are written to a snapshot. A "
        "start after a crash replays the log from the newest snapshot."
    ),
    _DEDUPLICATION.number("seqgate.deduplication.snapshot.interval.ms", 60_000)(
        "Time after which the names of a partition are written to a snapshot, if a record with a name came "
        "since the last one."
    ),
    _STATE.whole("producer.id.expiration.ms", 86400000, minimum=1, dynamic=True)(
        "Idle time after which a partition expires a producer."
    ),
    _STATE.whole("producer.id.expiration.check.interval.ms", 600000, minimum=1, dynamic=True)(
        "Interval at which partitions expire idle producers. An altered interval counts from the last pass."
    ),
    _STATE.whole("seqgate.producer.retained.batches", 5, minimum=5, maximum=10000)(
        "Newest batches that a partition retains of each producer. A retry of such a batch is answered "
        "with the offset of the original. Kafka retains 5."
    ),
    _STATE.whole("seqgate.producer.max.per.partition", 100000, minimum=1, dynamic=True)(
        "Producers that one partition tracks. Beyond the limit the longest idle producer is evicted."
    ),
    _STATE.whole("seqgate.producer.max", 1000000, minimum=1, dynamic=True)(
        "Producers that all partitions track together. Beyond the limit the longest idle producer is evicted."
    ),
    _STATE.whole("seqgate.producer.min.idle.ms", 900000, minimum=0, dynamic=True)(
        "Idle time before which a producer is never evicted. When no producer has been idle for so long, a "
        "new producer is refused instead, and may retry."
    ),
    _STATE.whole("seqgate.producer.clients.max", 10000, minimum=0, dynamic=True)(
        "Producers whose client id, address, principal and library the gateway tracks, over restarts too, "
        "for `seqgate producers`, `seqgate transactions` and the console. Beyond the limit the producer is "
        "dropped whose client was seen longest ago, and listed without a client until it connects again. "
        "With 0 none is tracked, and the file of the data directory names none."
    ),
    _STATE.whole("seqgate.verdicts.kept.max", 1000, minimum=0, maximum=10000, dynamic=True)(
        "Newest verdicts on batches that were not stored, with their clients, that the gateway keeps over "
        "restarts, for `seqgate verdicts` and the console, which show the newest 10,000 since the start. "
        "With 0 none is kept, and the file of the data directory has none."
    ),
    _STATE.whole("seqgate.refused.batches.max", 100000, minimum=1)(
        "Refused batches that all connections track together, one for each producer and partition, so "
        "that no later batch of the producer is stored first. Beyond the limit a connection drops its "
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

TRANSACTION_SETTINGS = (
    _TRANSACTIONS.number("transaction.max.timeout.ms", 900_000)(
        "Longest transaction timeout that a producer may ask for."
    ),
    _TRANSACTIONS.number("transaction.abort.timed.out.transaction.cleanup.interval.ms", 10_000)(
        "Interval at which open transactions that have timed out are aborted."
    ),
    _TRANSACTIONS.number("transactional.id.expiration.ms", 604_800_000)(
        "Time after its last transaction for which a transactional id is kept."
    ),
    _TRANSACTIONS.number("transaction.remove.expired.transaction.cleanup.interval.ms", 3_600_000)(
        "Interval at which expired transactional ids are removed."
    ),
    _TRANSACTIONS.switch("transaction.partition.verification.enable", True, dynamic=True)(
        "Whether a transactional batch is refused when its partition was not added to the open transaction. "
        "Applies to producers that add partitions themselves (before Produce v12)."
    ),
    _TRANSACTIONS.number("transaction.state.log.num.partitions", 50, maximum=10_000)(
        "Partitions that `__transaction_state` is created with."
    ),
    _TRANSACTIONS.number("transaction.state.log.segment.bytes", 104_857_600)(
        "Segment size of `__transaction_state`."
    ),
    _TRANSACTIONS.number("seqgate.transactional.id.max", 100_000, dynamic=True)(
        "Transactional ids that are kept at once. A further transactional id is refused with "
        "POLICY_VIOLATION."
    ),
    _TRANSACTIONS.number("seqgate.transaction.partitions.max", 10_000, dynamic=True)(
        "Partitions that may take part in one transaction. A further partition is refused with "
        "POLICY_VIOLATION."
    ),
)
