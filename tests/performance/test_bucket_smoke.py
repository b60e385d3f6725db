"""The benchmark of a bucket counts correctly."""

from __future__ import annotations

from pathlib import Path

from tests.performance.bare_puts import bare_put_us
from tests.performance.bucket import ROWS, Distance, dollars, gateways, table
from tests.performance.loads import load_program
from tests.support.object_stores import Versitygw


def test_the_store_gets_what_is_counted(tmp_path: Path) -> None:
    row = next(row for row in ROWS if row.name == "one-1")
    at = Distance(load_program(tmp_path), tmp_path, seconds=0.5)
    with gateways(tmp_path, median_ms=5, p99_ms=10) as both:
        found = both.measure(row, at, 1)
    [far], [near] = found["bucket"], found["local"]
    assert far.store.puts >= far.sample.requests, "one connection waits for each of its records"
    assert far.store.put_bytes > 100 * far.sample.records
    assert min(far.store.put_ms) > 1, "answers are delayed"
    assert near.sample.records > far.sample.records
    assert dollars(far.store) > 0
    lines = table(row, found)
    assert [line.count("|") for line in lines] == [12, 12]


def test_bare_puts_take_cpu() -> None:
    with Versitygw() as store:
        cost_us = bare_put_us(store.port, "bare")
    assert 0.01 < cost_us < 100
