"""The seeds of random tests. `make test` runs the same cases each time; `make soak` draws new ones and prints
how to replay them.

A test with a random order of events asks `chosen_seed`. A Hypothesis test runs with one of the two profiles
below; the test itself sets only its number of examples.
"""

from __future__ import annotations

import os
from random import SystemRandom

from hypothesis import settings

SEED_VARIABLE = "SEQGATE_TEST_SEED"
"""The environment variable that replays a random test with the seed of a soak."""
FIXED_SEED = 1
FIXED_PROFILE = "ci"
"""The profile in which Hypothesis derives every example from the test's own code. It also replaces
Hypothesis's profile of this name.
"""
FRESH_PROFILE = "soak"
"""The profile in which Hypothesis derives every example from `--hypothesis-seed`."""


def chosen_seed() -> int:
    """Return the seed of `SEQGATE_TEST_SEED`, or the seed that `make test` always uses; print it for a
    replay.
    """
    seed = int(os.environ.get(SEED_VARIABLE) or FIXED_SEED)
    print(f"{SEED_VARIABLE}={seed}")
    return seed


def fresh_seed() -> int:
    """Return a new random seed for a soak."""
    return SystemRandom().randrange(2**31)


def register_profiles() -> None:
    """Register both profiles and load the fixed one; `--hypothesis-profile soak` loads the other."""
    settings.register_profile(FIXED_PROFILE, derandomize=True, database=None, deadline=None)
    settings.register_profile(FRESH_PROFILE, derandomize=False, database=None, deadline=None, print_blob=True)
    settings.load_profile(FIXED_PROFILE)
