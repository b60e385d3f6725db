"""Settings of the disk: the free space that is reserved, and the speed of deleting files."""

from __future__ import annotations

from functools import partial

from gateway.config.setting import LONG_MAX, Setting, SettingType, whole_number

_LOG = "Log maintenance"
_number = partial(whole_number, _LOG)

DISK_SETTINGS = (
    _number(
        "seqgate.deletion.max.files.per.second",
        2000,
        "Files of deleted segments and topics that the gateway deletes per second. The limit leaves the disk time for requests.",
    ),
    Setting(
        name="seqgate.deletion.max.bytes.per.second",
        type=SettingType.LONG,
        default=4 << 30,
        minimum=1 << 20,
        maximum=LONG_MAX,
        section=_LOG,
        doc="Bytes of deleted segments and topics that the gateway frees per second. Files are deleted one by "
        "one, each as a whole; after a file larger than this, the next file waits until the average fits.",
    ),
    Setting(
        name="seqgate.log.min.free.bytes",
        type=SettingType.LONG,
        default=64 << 20,
        minimum=0,
        maximum=LONG_MAX,
        dynamic=True,
        section=_LOG,
        doc="Free space on the disk of `log.dirs` that producers may not use. With less free space the gateway refuses batches of "
        "producers with KAFKA_STORAGE_ERROR, and producers retry. The reserve is for offset commits, ends of transactions, "
        "retention and deletions; reads continue, too. 0 keeps no reserve.",
    ),
)
