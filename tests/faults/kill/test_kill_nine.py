"""Four client libraries send while the gateway is killed again and again: no acknowledged record is lost or
duplicated.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.faults.kill.checker import check, summary
from tests.faults.kill.load import KillableGateway, Producers, create_topic, fixed_port
from tests.support.read_back import read_back
from tests.support.seeds import SEED_VARIABLE, chosen_seed

KILLS = {"test": 12, "nightly": 50}
"""The number of kills in each tier."""
AT_ONCE = 0.15
"""The share of kills that come immediately after a start."""
WHILE_STARTING = 0.3
"""The share of kills after which the next gateway is killed too, before it answers."""
START_TICKS = (5, 45)
"""Processor time in hundredths of a second. After this time a start is in its recovery."""
MOST_RECORDS_BETWEEN = 1500
TOPIC = "killed"
PARTITIONS = 6


@pytest.mark.parametrize("kills", [pytest.param(KILLS[tier], marks=pytest.mark.tier(tier)) for tier in KILLS])
def test_kills_under_load(tmp_path: Path, kills: int) -> None:
    seed = chosen_seed()
    rng = Random(seed)
    gateway = KillableGateway(tmp_path / "data", port=fixed_port())
    with gateway:
        create_topic(gateway.bootstrap, TOPIC, PARTITIONS)
        with Producers(gateway.bootstrap, TOPIC, PARTITIONS, tmp_path) as producers:
            producers.await_further(1)
            kill_again_and_again(gateway, producers, rng, kills)
            producers.finish()
            print(producers.summary())
            rows = read_back(gateway.bootstrap, TOPIC, PARTITIONS)
            breaches = check(producers.ledgers, rows)
            assert not breaches, f"{SEED_VARIABLE}={seed}\n{summary(breaches)}\n{producers.summary()}"
    assert "Traceback" not in gateway.stderr_text()


def kill_again_and_again(
    gateway: KillableGateway, producers: Producers, rng: Random, wanted_kills: int
) -> None:
    kills = 0
    while kills < wanted_kills:
        if rng.random() >= AT_ONCE:
            producers.await_further(rng.randint(1, MOST_RECORDS_BETWEEN))
        gateway.kill()
        kills += 1
        if rng.random() < WHILE_STARTING:
            gateway.kill_while_starting(rng.randint(*START_TICKS))
            kills += 1
        gateway.start()
