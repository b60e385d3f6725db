"""A fixed part of what `make soak` runs: whole gateways with their clients, crashed and checked, from fixed
seeds.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.simulation.replaying import DISPLACED, run, seeds_of_tiers
from tests.tiers import in_tiers

SEEDS = {"test": range(6), "all": range(6, 18), "nightly": range(18, 36)}
BUCKET_SEEDS = {"test": range(4), "all": range(4, 10), "nightly": range(10, 20)}
SHARE_SEEDS = {"test": range(3), "all": range(3, 15), "nightly": range(15, 115)}
REPLAYED = (4, 7)
"""Seeds of which one is replayed in `make test-all`, and all in `make test-nightly`."""
SHARES_REPLAYED = (1, 6)
"""A seed with one gateway, and one with a cluster."""
REPLAY_IN_BUCKET = (
    "from tests.simulation.plan import bucket_plan_of; from tests.simulation.simulation import run_seed; "
    "seed = int(sys.argv[1]); print(run_seed(seed, bucket_plan_of(seed)).fingerprint)"
)
REPLAY = "from tests.simulation.simulation import run_seed; print(run_seed(int(sys.argv[1])).fingerprint)"
REPLAY_SHARES = (
    "from tests.simulation.worlds import World; print(World.SHARES.run(int(sys.argv[1])).fingerprint)"
)


@pytest.mark.parametrize("seeds", seeds_of_tiers(SEEDS))
def test_nothing_is_lost_doubled_or_out_of_order(seeds: range) -> None:
    counts = counts_of("--seed", str(seeds.start), "--seeds", str(len(seeds)), "--jobs", "1")
    assert counts["seeds"] == len(seeds)
    # A run without these events would find no breach.
    assert counts["records checked"] > 50 * len(seeds)
    faults = ("kill", "power cut", "connection cut", "batches held back")
    events = ("transactions ended", "lines acknowledged", "names told")
    assert [event for event in (*faults, *events) if not counts[event]] == []


@pytest.mark.parametrize("seeds", seeds_of_tiers(BUCKET_SEEDS))
def test_nothing_is_lost_where_records_are_durable_in_a_bucket(seeds: range) -> None:
    counts = counts_of("--bucket", "--seed", str(seeds.start), "--seeds", str(len(seeds)), "--jobs", "1")
    assert counts["records checked"] > 50 * len(seeds)
    assert [event for event in ("lost disk", "lives in the bucket") if not counts[event]] == []


@pytest.mark.parametrize("seeds", seeds_of_tiers(SHARE_SEEDS))
def test_each_record_of_a_share_group_is_accepted_or_has_one_letter(seeds: range) -> None:
    counts = counts_of("--shares", "--seed", str(seeds.start), "--seeds", str(len(seeds)), "--jobs", "1")
    assert counts["records delivered"] > 100 * len(seeds)
    events = ("kill", "records delivered again", "records said durably", "fetches without a record")
    assert [event for event in (*events, "letters read") if not counts[event]] == []


def counts_of(*arguments: str) -> dict[str, Any]:
    """Run seeds, in which nothing may be wrong; return what happened in them, and how often."""
    status, told = run("-m", "tests.simulation", *arguments)
    assert status == 0, told
    counts: dict[str, Any] = json.loads(told.splitlines()[-1])["counts"]
    return counts


@pytest.mark.parametrize("seed", in_tiers(REPLAYED, nightly=REPLAYED[1:]))
def test_a_seed_is_replayed_exactly(seed: int) -> None:
    """Runs the seed in two processes whose objects have different addresses: the events must be the same."""
    _, fingerprint = run("-c", "import sys; " + REPLAY, str(seed))
    _, again = run("-c", DISPLACED + REPLAY, str(seed))
    assert len(fingerprint.strip()) == 16, fingerprint
    assert again == fingerprint


@pytest.mark.tier("nightly")
def test_a_seed_in_a_bucket_is_replayed_exactly() -> None:
    _, fingerprint = run("-c", "import sys; " + REPLAY_IN_BUCKET, "3001")
    _, again = run("-c", DISPLACED + REPLAY_IN_BUCKET, "3001")
    assert len(fingerprint.strip()) == 16, fingerprint
    assert again == fingerprint


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("seed", SHARES_REPLAYED)
def test_a_seed_of_share_groups_is_replayed_exactly(seed: int) -> None:
    _, fingerprint = run("-c", "import sys; " + REPLAY_SHARES, str(seed))
    _, again = run("-c", DISPLACED + REPLAY_SHARES, str(seed))
    assert len(fingerprint.strip()) == 16, fingerprint
    assert again == fingerprint
