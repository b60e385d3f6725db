"""The throttle keeps the average of bytes per second below its limit."""

from __future__ import annotations

from seqgate.log.compaction.cleaner import Throttle


class Time:
    def __init__(self) -> None:
        self.now_s = 50.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_it_waits_for_as_long_as_the_bytes_may_take() -> None:
    time = Time()
    throttle = Throttle(100, lambda: time.now_s, time.sleep)
    throttle.count(200)
    assert time.now_s == 52
    time.now_s += 3
    throttle.count(100)
    assert time.now_s == 55
    throttle.count(300)
    assert time.now_s == 56


def test_no_limit() -> None:
    time = Time()
    Throttle(0, lambda: time.now_s, time.sleep).count(1 << 60)
    assert time.now_s == 50
