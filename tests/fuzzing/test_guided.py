"""A short search for more, where there is an atheris. `make soak` searches longer."""

from __future__ import annotations

import os

from tests.fuzzing.run import HAS_WHEELS, fuzz
from tests.fuzzing.targets import NAMES

SECONDS = float(os.environ.get("SEQGATE_TEST_FUZZING_SECONDS", 2 * len(NAMES)))
SEED = int(os.environ.get("SEQGATE_TEST_FUZZING_SEED", "1"))

if HAS_WHEELS:

    def test_nothing_breaks() -> None:
        outcome = fuzz(NAMES, SECONDS, SEED)
        assert not outcome.breaches
        assert outcome.counts["targets"] == len(NAMES)
        assert outcome.counts["inputs"] > len(NAMES)
        assert outcome.counts["edges"] > 0
