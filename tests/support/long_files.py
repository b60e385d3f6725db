"""Orders test files for parallel runs: long files come first, so that none is left running alone at the end,
and files that share an Apache Kafka or a Spark go to one worker.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

TESTS = Path(__file__).resolve().parents[1]
LONG_FILES = (
    "simulation/test_plant.py",
    "compat/differential/test_differential.py",
    "faults/processes/test_processes.py",
    "fuzzing/test_guided.py",
    "docs/test_blocks.py",
    "compat/transactions/test_exactly_once.py",
    "system/console/test_frame.py",
    "compat/groups/test_migration.py",
    "system/cluster/test_lost_disk.py",
    "docs/test_site.py",
    "system/demo/test_demo.py",
    "simulation/cluster/test_cluster_simulation.py",
    "compat/spark/test_into_database_killed.py",
    "compat/spark/test_pipelines.py",
    "compat/groups/test_streams.py",
    "compat/spark/test_into_database.py",
    "system/console/test_groups.py",
    "gateway/cluster/uploads/test_every_step.py",
    "compat/groups/test_share_groups.py",
    "system/commands/test_groups.py",
    "compat/differential/rights/test_rights.py",
    "simulation/test_simulation.py",
    "compat/security/matrix/test_clients.py",
    "faults/kill/test_kill_nine.py",
    "faults/deduplication/test_killed_applications.py",
    "faults/test_bit_flips.py",
    "compat/transactions/test_producers.py",
    "system/console/test_producers.py",
    "system/test_distribution.py",
    "compat/commands/test_records.py",
    "system/commands/test_transactions.py",
    "system/workers/test_workers.py",
    "compat/differential/logins/test_logins.py",
    "system/console/test_access.py",
    "compat/databases/test_database_reader.py",
    "system/deployment/test_containers.py",
    "compat/clients/test_compression_types.py",
    "upgrade/test_opens.py",
)
"""The files that took a minute or more where all together took 160, the longest first."""

SHARED = ("tests/compat/differential/", "tests/compat/spark/")
"""Folders whose files run in one worker: each worker would start a peer of its own for them."""
ALONE = ("tests/compat/differential/logins/", "tests/compat/differential/rights/")
"""Folders in `SHARED` whose files start peers of their own anyway."""


class SharedPeers(LoadFileScheduling):  # type: ignore[misc]
    """Gives each worker whole files, as `--dist loadfile`, and one worker all files of a folder in `SHARED`."""

    def _split_scope(self, nodeid: str) -> str:
        folder = next((folder for folder in SHARED if nodeid.startswith(folder)), None)
        if folder is not None and not nodeid.startswith(ALONE):
            return folder
        return str(super()._split_scope(nodeid))


def longest_first(items: list[pytest.Item]) -> None:
    """Put the tests of long files before all others; otherwise, and within a file, the order stays.

    Raises UsageError for a file that does not exist.
    """
    ranks = {TESTS / name: rank for rank, name in enumerate(LONG_FILES)}
    for path in ranks:
        if not path.is_file():
            raise pytest.UsageError(f"LONG_FILES names {path}, which does not exist")
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))
