"""Orders test files for parallel runs: long files come first, so that none is left running alone at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
LONG_FILES = (
    "compat/differential/test_differential.py",
    "compat/transactions/test_exactly_once.py",
    "compat/spark/test_pipelines.py",
    "compat/examples/test_spark_exactly_once.py",
    "compat/differential/rights/test_rights.py",
    "compat/differential/logins/test_logins.py",
    "compat/differential/logins/test_tokens_and_quotas.py",
    "compat/differential/logins/test_illegal_states.py",
    "faults/processes/test_processes.py",
    "faults/kill/test_kill_nine.py",
    "compat/groups/test_migration.py",
    "fuzzing/test_guided.py",
    "system/commands/test_groups.py",
    "compat/groups/test_share_groups.py",
    "compat/security/matrix/test_clients.py",
    "system/demo/test_demo.py",
    "simulation/test_simulation.py",
    "compat/examples/test_pytest_plugin.py",
    "docs/test_blocks.py",
    "compat/groups/test_streams.py",
    "compat/groups/test_streams_groups.py",
    "compat/transactions/test_producers.py",
    "compat/spark/test_restart.py",
    "compat/examples/test_streams.py",
    "compat/tools/test_group_tools.py",
    "compat/tools/test_kafka_tools.py",
    "compat/transactions/test_tools.py",
    "system/server/test_connections.py",
    "simulation/test_plant.py",
    "system/commands/test_transactions.py",
    "upgrade/test_newer_formats.py",
    "system/deployment/test_containers.py",
    "system/test_distribution.py",
    "upgrade/test_previous_release.py",
)
"""The files that take a hundredth of the whole time or more, the longest first."""


def longest_first(items: list[pytest.Item]) -> None:
    """Put the tests of long files before all others; otherwise, and within a file, the order stays.

    Raises UsageError for a file that does not exist.
    """
    ranks = {TESTS / name: rank for rank, name in enumerate(LONG_FILES)}
    for path in ranks:
        if not path.is_file():
            raise pytest.UsageError(f"LONG_FILES names {path}, which does not exist")
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))
