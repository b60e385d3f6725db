"""Settings of what groups get of a topic, and when: delayed records, the backlog that a group may leave
unread, and the time after which it is moved on; where the records go that no member could process.
"""

from __future__ import annotations

from seqgate.gateway.config.setting import LONG_MAX, Section, Setting, SettingValue, header_complaint

# Settings of delayed records, which share groups get only when the records are due.

_DELIVERY = Section("Delayed records")
_DELAYS = Section(_DELIVERY.title, "log.", dynamic=True)
_LETTERS = Section("Dead letters", dynamic=True)

DELIVERY_TOPIC_SETTINGS = (
    _DELAYS.text("delivery.delay.header", "", check=header_complaint(0))(
        "Record header that says when a record is due, as decimal text in ms since 1970 (UTC). Share groups "
        "get the record no earlier. With an empty name no record is delayed. Not allowed together with the "
        "cleanup policy compact. See `seqgate help delayed-records`."
    ),
)
DELIVERY_SETTINGS = (
    _LETTERS.text("errors.deadletterqueue.topic.name.prefix", "dlq.")(
        "Beginning of the name of every topic that share groups may write their dead letters to (KIP-1191). "
        "With an empty value every name but one that begins with `__` is allowed."
    ),
    _LETTERS.switch("errors.deadletterqueue.auto.create.topics.enable", False)(
        "Whether the gateway creates the dead-letter topic of a share group when the first letter is written "
        "(KIP-1191). A group whose topic does not exist archives its records without a letter, as in Kafka."
    ),
    _DELAYS.long("log.delivery.delay.max.ms", 2_592_000_000, minimum=0, maximum=LONG_MAX)(
        "Longest delay of a record, from now. A batch with a record that is due later is refused with "
        "INVALID_RECORD."
    ),
    _DELAYS.long("log.delivery.delay.hold.ms", 3_600_000, minimum=0, maximum=LONG_MAX)(
        "Time for which retention and TTL keep a delayed record after it is due, so that groups can read "
        "the record."
    ),
    _DELIVERY.number("seqgate.delayed.records.max.per.partition", 100_000)(
        "Records of one partition that are not due yet. Beyond the limit a batch with delayed records is "
        "refused with NOT_ENOUGH_REPLICAS, which producers retry."
    ),
    _DELIVERY.number("seqgate.delayed.records.max", 1_000_000)(
        "Records of all partitions together that are not due yet. The limit acts like the one of a partition."
    ),
    _DELIVERY.number("seqgate.delayed.records.snapshot.interval.ms", 60_000)(
        "Interval at which the delayed records of a log are written to a snapshot. A start after a crash "
        "replays the log from there."
    ),
    _DELIVERY.number("seqgate.share.partition.max.stretches", 20_000)(
        "Ranges of consecutive offsets with the same state that a share group keeps of a partition. "
        "Delivery past delayed records splits ranges. At the limit the group gets no further records of the "
        "partition until delayed records in between are due."
    ),
)


# Settings of backlog quotas and of message TTL.

_BACKLOG = Section("Backlog and message TTL", dynamic=True)
_QUOTAS = Section(_BACKLOG.title, "seqgate.", dynamic=True)


NO_LIMIT = -1
HOLD = "producer_request_hold"
REFUSE = "producer_exception"
EVICT = "consumer_backlog_eviction"
POLICIES = (HOLD, REFUSE, EVICT)


def _not_zero(value: SettingValue) -> str | None:
    return "0 would allow no unread record; -1 sets no limit" if value == 0 else None


def _limit(name: str, doc: str) -> Setting:
    return _QUOTAS.long(f"seqgate.{name}", NO_LIMIT, minimum=NO_LIMIT, check=_not_zero)(doc)


BACKLOG_SETTINGS = (
    _limit(
        "backlog.quota.bytes",
        "Bytes of a partition that its slowest group may leave unread; -1 for no limit. See "
        "`seqgate help backlog`.",
    ),
    _limit(
        "backlog.quota.ms",
        "Age that the first unread record of a partition's slowest group may reach; -1 for no limit.",
    ),
    _QUOTAS.text("seqgate.backlog.quota.policy", HOLD, choices=POLICIES)(
        f"Effect of an exceeded backlog quota. `{HOLD}`: producers wait for their answers. `{REFUSE}`: "
        f"producers are refused with a retriable error. `{EVICT}`: slow groups are moved forward. The names "
        "are those of Apache Pulsar."
    ),
    _limit(
        "message.ttl.ms",
        "Age at which groups are moved forward past unread records; -1 for never. The records stay until "
        "retention deletes them.",
    ),
    _BACKLOG.number("seqgate.backlog.check.interval.ms", 1_000)(
        "Interval at which the gateway measures the backlogs of topics with a quota or a TTL."
    ),
    _BACKLOG.number("seqgate.backlog.hold.max.ms", 60_000)(
        "Longest time that a Produce request waits for a backlog to shrink. A request waits for at most "
        "nine tenths of its own timeout. Then it is refused."
    ),
    _BACKLOG.number("seqgate.backlog.hold.max.requests", 1_000, minimum=0)(
        "Produce requests that wait at the same time. A further request is refused."
    ),
    _BACKLOG.number("seqgate.backlog.hold.max.bytes", 33_554_432, minimum=0)(
        "Bytes of the Produce requests that wait. A further request is refused. Waiting requests count "
        "towards queued.max.request.bytes."
    ),
)
