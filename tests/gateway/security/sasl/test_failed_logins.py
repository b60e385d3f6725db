from __future__ import annotations

from seqgate.gateway.security.sasl.login import ADDRESSES, LINE_INTERVAL_S, FailedLogins


def test_failures_of_an_address_share_a_line() -> None:
    failed = FailedLogins()
    assert failed.note("a", 1.0) == 0
    assert [failed.note("a", 2.0) for _ in range(3)] == [None] * 3
    assert failed.note("b", 2.0) == 0
    assert failed.note("a", 1.0 + LINE_INTERVAL_S) == 3
    assert failed.note("a", 1.0 + 2 * LINE_INTERVAL_S) == 0
    assert failed.total == 7


def test_the_address_that_was_logged_first_is_forgotten() -> None:
    failed = FailedLogins()
    for number in range(ADDRESSES + 1):
        assert failed.note(str(number), 1.0) == 0
    assert failed.note(str(ADDRESSES), 1.0) is None
    assert failed.note("0", 1.0) == 0
