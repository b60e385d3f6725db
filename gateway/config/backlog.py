"""Settings of message TTL and of backlog quotas: what is not read in time, or too much of it."""

from __future__ import annotations

from functools import partial

from gateway.config.setting import Setting, SettingType, SettingValue, whole_number

_SECTION = "Backlog and message TTL"
_number = partial(whole_number, _SECTION)

NO_LIMIT = -1
HOLD = "producer_request_hold"
REFUSE = "producer_exception"
EVICT = "consumer_backlog_eviction"
POLICIES = (HOLD, REFUSE, EVICT)


def _not_zero(value: SettingValue) -> str | None:
    return "0 would let nothing be unread; -1 sets no limit" if value == 0 else None


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
        "How many bytes of a partition its slowest group may have before it; -1 for no limit. See docs/backlog.md.",
    ),
    _limit(
        "backlog.quota.ms",
        "How old the first record that the slowest group of a partition has not read may be; -1 for no limit.",
    ),
    Setting(
        name="seqgate.backlog.quota.policy",
        topic_name="backlog.quota.policy",
        type=SettingType.STRING,
        default=HOLD,
        choices=POLICIES,
        dynamic=True,
        section=_SECTION,
        doc="What happens beyond a backlog quota: producers wait for their answers, producers are refused with an error "
        "that they retry, or slow groups are moved forward. The names are those of Apache Pulsar.",
    ),
    _limit(
        "message.ttl.ms",
        "Age at which records are skipped for groups that have not read them; -1 for never. The records stay until "
        "retention deletes them.",
    ),
    _number(
        "seqgate.backlog.check.interval.ms",
        1_000,
        "How often the backlogs of topics with a quota or a TTL are measured.",
        dynamic=True,
    ),
    _number(
        "seqgate.backlog.hold.max.ms",
        60_000,
        "How long a Produce waits at most for a backlog to shrink; it waits no longer than nine tenths of its own "
        "time-out, and is then refused.",
        dynamic=True,
    ),
    _number(
        "seqgate.backlog.hold.max.requests",
        1_000,
        "How many Produce requests wait at the same time; a further one is refused.",
        minimum=0,
        dynamic=True,
    ),
    _number(
        "seqgate.backlog.hold.max.bytes",
        33_554_432,
        "Bytes of the Produce requests that wait; a further one is refused. They count towards queued.max.request.bytes.",
        minimum=0,
        dynamic=True,
    ),
    _number(
        "seqgate.backlog.refused.producers.max",
        1_000,
        "Producers of a partition of whom it is remembered which batch was refused, so that none after it is taken first.",
    ),
)
