from __future__ import annotations

from seqgate.gateway.cluster.silence import DRIFT, Lease, conviction_s


class Log:
    def __init__(self) -> None:
        self.last_confirmed_sent_s = float("-inf")


def test_a_lease_lasts_from_the_time_at_which_the_last_confirmed_object_was_sent() -> None:
    now_s = [100.0]
    log = Log()
    lease = Lease(log, 6.0, lambda: now_s[0])
    assert lease.is_over()
    assert lease.left_s == 0
    log.last_confirmed_sent_s = 98.0
    assert not lease.is_over()
    assert lease.left_s == 4.0
    now_s[0] = 103.9
    assert not lease.is_over()
    now_s[0] = 104.0
    assert lease.is_over()


def test_a_conviction_takes_longer_than_a_lease_on_a_clock_that_drifts() -> None:
    assert conviction_s(6.0) > 6.0 * (1 + DRIFT / 2)
