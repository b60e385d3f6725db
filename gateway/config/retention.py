"""Settings of what happens to old segments, apart from those that TOPIC_SETTINGS has had from the beginning."""

from __future__ import annotations

from gateway.config.setting import Fallback, Setting, SettingType

_MS_PER_HOUR = 3600000

RETENTION_SETTINGS = (
    Setting(
        name="log.roll.jitter.ms",
        topic_name="segment.jitter.ms",
        type=SettingType.LONG,
        default=None,
        minimum=0,
        dynamic=True,
        fallbacks=(Fallback("log.roll.jitter.hours", _MS_PER_HOUR),),
        section="Topics and their logs",
        doc="A segment goes on in a new one up to this much before segment.ms, each at a time of its own; unset means "
        "log.roll.jitter.hours.",
    ),
    Setting(
        name="log.roll.jitter.hours",
        type=SettingType.INT,
        default=0,
        minimum=0,
        section="Log maintenance",
        doc="Used where log.roll.jitter.ms is unset.",
    ),
)
