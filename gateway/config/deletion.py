"""Settings of how files of deleted topics and segments go."""

from __future__ import annotations

from functools import partial

from gateway.config.setting import LONG_MAX, Setting, SettingType, whole_number

_LOG = "Log maintenance"
_number = partial(whole_number, _LOG)

DELETION_SETTINGS = (
    _number(
        "seqgate.deletion.max.files.per.second",
        2000,
        "Files of deleted segments and topics that are deleted in a second, so that the disk has time for requests.",
    ),
    Setting(
        name="seqgate.deletion.max.bytes.per.second",
        type=SettingType.LONG,
        default=4 << 30,
        minimum=1 << 20,
        maximum=LONG_MAX,
        section=_LOG,
        doc="Bytes of deleted segments and topics that are given back to the disk in a second. One file goes at a time, "
        "however large it is; after one that is larger than this the next waits accordingly.",
    ),
)
