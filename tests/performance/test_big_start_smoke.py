"""The benchmark of a big start finds all records and all producers of the bucket, at every start."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.performance.big_start import Size, bucket_in, prepare, row, start
from tests.support.setup_peers import versitygw_program

SIZE = Size(total_bytes=600_000, producers=3_000, partitions=4)


@pytest.mark.parametrize("store", ["file", "versitygw"])
def test_each_start_finds_the_same_tails(tmp_path: Path, store: str) -> None:
    assert store == "file" or versitygw_program() is not None
    with bucket_in(store, tmp_path / "bucket") as place:
        assert prepare(place, tmp_path / "preparing", SIZE, object_bytes=100_000) > 6
        started = [start(place, tmp_path / f"start-{number}", SIZE) for number in range(2)]
    for took in started:
        assert took.cpu_s > 0
        assert took.wall_s < 60
        assert took.peak_bytes > 20_000_000
    assert row(store, SIZE, started).count("|") == 5
    assert not (tmp_path / "start-0").exists()
