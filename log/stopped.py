"""The face of `log` for commands on the data directory of a stopped gateway, which no LogDirectory has open.

The commands read facts without a lock, and hold LOCK while they mend files.
"""

from __future__ import annotations

from log.directory.damage_scan import DamagedPartition, durable_ends, scan_directory
from log.directory.directory_files import KNOWN_NAMES, LOCK
from log.directory.repair import give_up
from log.directory.stored_batches import stored_batches
from log.files.versions import check_directory_version
from log.state.name_snapshots import newest_names

__all__ = [
    "KNOWN_NAMES",
    "LOCK",
    "DamagedPartition",
    "check_directory_version",
    "durable_ends",
    "give_up",
    "newest_names",
    "scan_directory",
    "stored_batches",
]
