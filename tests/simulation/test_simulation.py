"""A fixed part of what `make soak` runs: whole gateways with their clients, crashed and checked, from fixed
seeds.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tests.simulation.replaying import DISPLACED, run

SEEDS = 36
BUCKET_SEEDS = 20
REPLAYED = (4, 7)
REPLAY_IN_BUCKET = (
    "from tests.simulation.plan import bucket_plan_of; from tests.simulation.simulation import run_seed; "
    "seed = int(sys.argv[1]); print(run_seed(seed, bucket_plan_of(seed)).fingerprint)"
)
REPLAY = "from tests.simulation.simulation import run_seed; print(run_seed(int(sys.argv[1])).fingerprint)"


def test_nothing_is_lost_doubled_or_out_of_order() -> None:
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    jobs = max(1, (os.cpu_count() or 1) // workers)
    status, told = run("-m", "tests.simulation", "--seeds", str(SEEDS), "--jobs", str(jobs))
    assert status == 0, told
    counts: dict[str, Any] = json.loads(told.splitlines()[-1])["counts"]
    assert counts["seeds"] == SEEDS
    # A run without these events would find no breach.
    assert counts["records checked"] > 200 * SEEDS
    assert counts["kill"] + counts["power cut"] > 3 * SEEDS
    assert counts["connection cut"] > SEEDS
    assert counts["transactions ended"] > SEEDS
    assert counts["lines acknowledged"] > 50 * SEEDS
    assert counts["names told"] > 5 * SEEDS


def test_nothing_is_lost_where_records_are_durable_in_a_bucket() -> None:
    status, told = run("-m", "tests.simulation", "--bucket", "--seeds", str(BUCKET_SEEDS), "--jobs", "1")
    assert status == 0, told
    counts: dict[str, Any] = json.loads(told.splitlines()[-1])["counts"]
    assert counts["records checked"] > 200 * BUCKET_SEEDS
    assert counts["lost disk"] > BUCKET_SEEDS // 2
    assert counts["store away"] > BUCKET_SEEDS // 5
    assert counts["fenced"] > BUCKET_SEEDS // 5
    assert counts["lives in the bucket"] > 3 * BUCKET_SEEDS


@pytest.mark.parametrize("seed", REPLAYED)
def test_a_seed_is_replayed_exactly(seed: int) -> None:
    """Runs the seed in two processes whose objects have different addresses: the events must be the same."""
    _, fingerprint = run("-c", "import sys; " + REPLAY, str(seed))
    _, again = run("-c", DISPLACED + REPLAY, str(seed))
    assert len(fingerprint.strip()) == 16, fingerprint
    assert again == fingerprint


def test_a_seed_in_a_bucket_is_replayed_exactly() -> None:
    _, fingerprint = run("-c", "import sys; " + REPLAY_IN_BUCKET, "3001")
    _, again = run("-c", DISPLACED + REPLAY_IN_BUCKET, "3001")
    assert len(fingerprint.strip()) == 16, fingerprint
    assert again == fingerprint
