"""Settings of how the gateway gets along with a disk that fills up."""

from __future__ import annotations

from gateway.config.setting import LONG_MAX, Setting, SettingType

DISK_SETTINGS = (
    Setting(
        name="seqgate.log.min.free.bytes",
        type=SettingType.LONG,
        default=64 << 20,
        minimum=0,
        maximum=LONG_MAX,
        dynamic=True,
        section="Log maintenance",
        doc="With less than this free on the disk of `log.dirs`, batches of producers are refused with KAFKA_STORAGE_ERROR, "
        "which they retry. The rest stays for what makes room or ends what was begun: reads, commits, transactions' ends, "
        "retention, deletions. 0 refuses nothing before the disk is full.",
    ),
)
