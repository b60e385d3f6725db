"""Applications are killed by `kill -9` again and again, and the gateway with them: every line is stored
exactly once.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.faults.deduplication.story import PLAIN, ROLES, Plot, play
from tests.support.seeds import SEED_VARIABLE, chosen_seed
from tests.tiers import in_tiers

PLOT = Plot(application_kills=2, gateway_kills=2, lines=1000)
LONG_PLOT = Plot(application_kills=8, gateway_kills=8, lines=2500)
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


@pytest.mark.parametrize("plot", in_tiers([PLOT, LONG_PLOT], nightly=[LONG_PLOT]), ids=["short", "long"])
def test_every_line_once(tmp_path: Path, spark: SparkSession, seed: int, plot: Plot) -> None:
    outcome = play(tmp_path, seed, plot, spark)
    print(dict(sorted(outcome.counts.items())))
    assert not outcome.breaches, f"{SEED_VARIABLE}={seed}\n" + "\n".join(outcome.breaches)
    assert outcome.counts["applications killed"] >= plot.application_kills
    assert outcome.counts["gateway killed"] >= plot.gateway_kills
    assert outcome.counts["records checked"] == len(ROLES) * plot.lines


def test_without_the_setting_lines_are_doubled(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    outcome = play(tmp_path, seed, WITHOUT, spark)
    print(dict(sorted(outcome.counts.items())))
    assert outcome.counts["records doubled"], f"{SEED_VARIABLE}={seed}"
    assert not outcome.counts["records lost"], f"{SEED_VARIABLE}={seed}"
