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
    "fuzzing/test_guided.py",
    "docs/test_blocks.py",
    "compat/differential/test_differential.py",
    "compat/spark/test_pipelines.py",
    "compat/transactions/test_exactly_once.py",
    "faults/processes/test_processes.py",
    "system/console/test_frame.py",
    "compat/groups/test_migration.py",
    "docs/test_site.py",
    "system/cluster/test_lost_disk.py",
    "compat/groups/test_streams.py",
    "compat/groups/test_share_groups.py",
    "system/cluster/test_history.py",
    "compat/differential/rights/test_rights.py",
    "system/console/test_groups.py",
    "gateway/cluster/uploads/test_every_step.py",
    "system/commands/test_groups.py",
    "system/test_installation.py",
    "compat/clients/test_workers.py",
    "compat/security/matrix/test_clients.py",
    "compat/groups/test_sharing.py",
    "system/demo/test_demo.py",
    "faults/kill/test_kill_nine.py",
    "simulation/cluster/test_cluster_simulation.py",
    "compat/compaction/test_compaction.py",
    "faults/test_bit_flips.py",
    "faults/test_transactions.py",
    "compat/transactions/test_producers.py",
    "compat/tools/test_dump_log_of_log_package.py",
    "compat/groups/test_streams_groups.py",
    "faults/hostile/test_pipelines.py",
    "compat/security/test_altered_listeners.py",
    "system/cluster/test_import.py",
    "system/console/test_producers.py",
    "system/test_distribution.py",
    "system/commands/test_transactions.py",
    "system/workers/test_workers.py",
    "simulation/test_simulation.py",
    "compat/transactions/test_streams.py",
    "compat/tools/test_group_tools.py",
    "compat/differential/logins/test_logins.py",
    "system/cluster/test_gateways_come_and_go.py",
    "system/console/test_access.py",
    "compat/databases/test_database_reader_killed.py",
    "compat/databases/test_database_reader.py",
    "system/workers/test_workers_of_a_bucket.py",
    "system/cluster/test_lost_state.py",
    "compat/groups/test_group_log.py",
    "faults/test_recovery.py",
    "system/deployment/test_containers.py",
    "compat/clients/test_compression_types.py",
    "compat/clients/test_client_telemetry.py",
    "compat/security/test_members_without_rights.py",
    "upgrade/test_opens.py",
)
"""The files that took half a minute or more where all together took 130, the longest first. Of a peer's files
the first one decides when all of them run.
"""

SHARED = {
    "tests/compat/differential/": "Apache Kafka",
    "tests/compat/commands/": "Apache Kafka",
    "tests/compat/console/": "Apache Kafka",
    "tests/compat/tools/test_streams_group_tools.py": "Apache Kafka",
    "tests/compat/spark/": "Spark",
    "tests/faults/deduplication/test_killed_applications.py": "Spark",
}
"""Folders and files that run in one worker by the peer that they share: each worker would start one of its own
for them.
"""
ALONE = ("tests/compat/differential/logins/", "tests/compat/differential/rights/")
"""Folders in `SHARED` whose files start peers of their own anyway."""


class SharedPeers(LoadFileScheduling):  # type: ignore[misc]
    """Gives each worker whole files, as `--dist loadfile`, and one worker all files of a peer in `SHARED`."""

    def _split_scope(self, nodeid: str) -> str:
        peer = next((peer for place, peer in SHARED.items() if nodeid.startswith(place)), None)
        if peer is not None and not nodeid.startswith(ALONE):
            return peer
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
