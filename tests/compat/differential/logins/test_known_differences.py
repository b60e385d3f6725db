"""The list of known differences stays true."""

from __future__ import annotations

from tests.compat.differential.logins import illegal_states, test_logins, test_tokens_and_quotas
from tests.compat.differential.logins.known_differences import KNOWN_DIFFERENCES

NAMES = [*illegal_states.TABLE.found, *test_logins.TABLE.found, *test_tokens_and_quotas.TABLE.found]


def test_every_known_difference_speaks_for_a_conversation() -> None:
    idle = [entry for entry in KNOWN_DIFFERENCES if not any(entry.speaks_for(name) for name in NAMES)]
    assert not idle, idle
