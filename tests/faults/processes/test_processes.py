"""Each test of faults in real processes runs for a short time: acknowledged records are stored once, in
order.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.processes.parts import PARTS, QUICK, SHARE
from tests.support.seeds import SEED_VARIABLE, chosen_seed
from tests.tiers import in_tiers


@pytest.mark.parametrize("name", in_tiers(SHARE, nightly=set(SHARE) - set(QUICK)))
def test_nothing_acknowledged_is_lost_or_doubled(name: str, tmp_path: Path) -> None:
    part = PARTS[name]
    seed = chosen_seed()
    outcome = part.run(tmp_path, seed, part.rounds)
    print(dict(outcome.counts))
    assert not outcome.breaches, f"{SEED_VARIABLE}={seed}\n" + "\n".join(outcome.breaches[:10])
    missing = [what for what in part.expected if not outcome.counts[what]]
    assert not missing, missing
