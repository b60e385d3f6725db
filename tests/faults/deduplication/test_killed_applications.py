"""Applications are killed by `kill -9` more than fifty times, and the gateway with them: every line is stored
exactly once.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.faults.deduplication.story import PLAIN, ROLES, Plot, play
from tests.support.seeds import SEED_VARIABLE, chosen_seed

KILLS = 50
PLOT = Plot(application_kills=8, gateway_kills=8, lines=2500)
WITHOUT = Plot(
    application_kills=1,
    gateway_kills=0,
    lines=600,
    roles=[role for role in ROLES if role.topic == PLAIN and role.is_idempotent],
    is_deduplicating=False,
    only_late=True,
)


@pytest.fixture
def seed() -> int:
    return chosen_seed()


def test_every_line_once(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    outcome = play(tmp_path, seed, PLOT, spark)
    print(dict(sorted(outcome.counts.items())))
    assert not outcome.breaches, f"{SEED_VARIABLE}={seed}\n" + "\n".join(outcome.breaches)
    assert outcome.counts["applications killed"] >= KILLS
    assert outcome.counts["gateway killed"] >= PLOT.gateway_kills
    assert outcome.counts["records checked"] == len(ROLES) * PLOT.lines


def test_without_the_setting_lines_are_doubled(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    outcome = play(tmp_path, seed, WITHOUT, spark)
    print(dict(sorted(outcome.counts.items())))
    assert outcome.counts["records doubled"], f"{SEED_VARIABLE}={seed}"
    assert not outcome.counts["records lost"], f"{SEED_VARIABLE}={seed}"
