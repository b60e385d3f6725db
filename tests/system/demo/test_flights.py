from __future__ import annotations

import json
from pathlib import Path

from examples.demo.processes import write_flights
from examples.demo.producers import Task, flights


def test_lines_carry_row_numbers_keys_and_typed_values(tmp_path: Path) -> None:
    file = write_flights(tmp_path / "flights", 1_000)
    lines = [line.partition("\t") for line in (tmp_path / "flights").read_text().splitlines()]
    rows = [json.loads(value) for _, _, value in lines]

    assert [row["row"] for row in rows] == list(range(1_000))
    assert all(key == (row["tailnum"] or "") for (key, _, _), row in zip(lines, rows, strict=True))
    assert rows[0]["carrier"] == "UA"
    assert (rows[0]["dep_time"], rows[0]["distance"], rows[0]["time_hour"]) == (
        517,
        1400,
        "2013-01-01T10:00:00Z",
    )
    assert any(row["dep_time"] is None for row in rows)
    assert file.records == file.flights_by_carrier.total() == 1_000


def test_shares_cover_every_line_once(tmp_path: Path) -> None:
    file = write_flights(tmp_path / "flights", 100)
    sent = []
    for share in file.shares([1, 2, 5]):
        task = Task("p", "", "", file.path, share.position, share.records)
        records = list(flights(task))
        assert [dict(record.headers)["sequence"] for record in records] == [
            b"%d" % i for i in range(share.records)
        ]
        sent += [json.loads(record.value)["row"] for record in records]
    assert sent == list(range(100))


def test_with_more_producers_than_flights_every_flight_has_one_sender(tmp_path: Path) -> None:
    shares = write_flights(tmp_path / "flights", 1).shares([1, 1, 1])
    assert sum(share.records for share in shares) == 1
