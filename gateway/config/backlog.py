"""Settings of backlog quotas and of message TTL."""

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
        doc=f"Effect of an exceeded backlog quota. `{HOLD}`: producers wait for their answers. `{REFUSE}`: producers are refused "
        f"with a retriable error. `{EVICT}`: slow groups are moved forward. The names are those of Apache Pulsar.",
    ),
    _limit(
        "message.ttl.ms",
        "Age at which groups are moved forward past unread records; -1 for never. The records stay until retention deletes them.",
    ),
    _number(
        "seqgate.backlog.check.interval.ms",
        1_000,
        "Interval at which the gateway measures the backlogs of topics with a quota or a TTL.",
        dynamic=True,
    ),
    _number(
        "seqgate.backlog.hold.max.ms",
        60_000,
        "Longest time that a Produce request waits for a backlog to shrink. A request waits for at most nine tenths of its own "
        "timeout. Then it is refused.",
        dynamic=True,
    ),
    _number(
        "seqgate.backlog.hold.max.requests",
        1_000,
        "Produce requests that wait at the same time. A further request is refused.",
        minimum=0,
        dynamic=True,
    ),
    _number(
        "seqgate.backlog.hold.max.bytes",
        33_554_432,
        "Bytes of the Produce requests that wait. A further request is refused. Waiting requests count towards "
        "queued.max.request.bytes.",
        minimum=0,
        dynamic=True,
    ),
)
