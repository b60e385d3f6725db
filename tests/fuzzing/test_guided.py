"""A short guided search with the same inputs each time, where atheris is installed. `make soak` searches
longer, from new seeds.
"""

from __future__ import annotations

from tests.fuzzing.run import HAS_WHEELS, fuzz
from tests.fuzzing.targets import NAMES
from tests.support.seeds import FIXED_SEED

INPUTS = {
    "acl_patterns": 2_000,
    "bearer_tokens": 2_000,
    "certificates": 2_000,
    "compressed_records": 8_000,
    "control_requests": 1_000,
    "named_batches": 300,
    "partition_files": 200,
    "plain_logins": 500,
    "record_batches": 8_000,
    "requests": 600,
    "scram_messages": 4_000,
    "small_formats": 8_000,
    "start_up": 50,
    "stored_state": 6_000,
    "tls_handshakes": 400,
    "wal_objects": 8_000,
}
"""The number of inputs that a target handles in about a second."""
MOST_SECONDS = 60 * len(NAMES)
"""The limit of seconds for one target, so that a hang fails the test within minutes."""

if HAS_WHEELS:

    def test_nothing_breaks() -> None:
        outcome = fuzz(NAMES, MOST_SECONDS, FIXED_SEED, inputs=INPUTS)
        assert not outcome.breaches
        assert outcome.counts["targets"] == len(NAMES)
        assert outcome.counts["inputs"] >= sum(INPUTS.values())
        assert outcome.counts["edges"] > 0
