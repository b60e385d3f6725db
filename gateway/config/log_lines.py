"""Settings of the gateway's own log lines."""

from __future__ import annotations

from gateway.config.setting import Setting, SettingType

_SECTION = "Log lines of the gateway"

LOGGING_SETTINGS = (
    Setting(
        name="seqgate.logging.level",
        type=SettingType.STRING,
        default="INFO",
        choices=("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"),
        section=_SECTION,
        doc="The lowest level of the gateway's log lines. `kafka-configs --entity-type broker-loggers` changes single loggers of a "
        "running gateway.",
    ),
    Setting(
        name="seqgate.logging.format",
        type=SettingType.STRING,
        default="text",
        choices=("text", "json"),
        section=_SECTION,
        doc="`text` is one line for people, `json` one object per line with time, level, logger, message and error.",
    ),
    Setting(
        name="seqgate.logging.file",
        type=SettingType.STRING,
        default=None,
        section=_SECTION,
        doc="The file that log lines are appended to; without it they go to stderr. A file that log rotation has renamed is "
        "opened again with the next line.",
    ),
)
