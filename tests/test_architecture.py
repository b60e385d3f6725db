"""The picture of the architecture agrees with the imports."""

from __future__ import annotations

from itertools import combinations

import pytest

from tests.support.architecture import PICTURE, drawn_from, picture
from tests.support.imports import ROOT
from tests.support.layers import Size, layers, place, reduced

DIAMOND = {
    "top": ["left", "right", "bottom"],
    "left": ["bottom"],
    "right": ["low"],
    "low": ["bottom"],
    "bottom": [],
}


def test_the_picture_is_up_to_date() -> None:
    assert PICTURE.read_text(encoding="utf-8") == drawn_from(ROOT), "run: make architecture"


def test_each_box_stands_above_what_it_imports() -> None:
    assert layers(DIAMOND) == [["bottom"], ["left", "low"], ["right"], ["top"]]


def test_an_arrow_beside_a_longer_way_is_left_out() -> None:
    assert reduced(DIAMOND) == [
        ("left", "bottom"),
        ("low", "bottom"),
        ("right", "low"),
        ("top", "left"),
        ("top", "right"),
    ]


def test_boxes_do_not_overlap_and_arrows_lead_down() -> None:
    sizes = {name: Size(40.0 + 30 * number, 20.0 + 5 * number) for number, name in enumerate(DIAMOND)}
    placed = place(DIAMOND, reduced(DIAMOND), sizes, gap=10, row_gap=15)
    for one, other in combinations(DIAMOND, 2):
        (x, y), (other_x, other_y) = placed.corners[one], placed.corners[other]
        beside = x + sizes[one].width <= other_x or other_x + sizes[other].width <= x
        assert beside or y + sizes[one].height <= other_y or other_y + sizes[other].height <= y
    for line in placed.lines:
        heights = [y for _, y in line]
        assert heights == sorted(heights)
    assert all(
        0 <= x <= placed.size.width and 0 <= y <= placed.size.height for line in placed.lines for x, y in line
    )


@pytest.mark.parametrize(
    ("stored", "in_circle"), [(["log.disk"], False), (["log.disk", "log.files.rows"], True)]
)
def test_rooms_that_import_each_other_share_a_red_box(stored: list[str], in_circle: bool) -> None:
    imports = {
        "log": ["log.rows.table"],
        "log.rows": [],
        "log.rows.table": ["log.files.storage"],
        "log.files": [],
        "log.files.storage": stored,
        "log.files.rows": ["log.rows.table"],
        "log.disk": [],
    }
    if not in_circle:
        del imports["log.files.rows"]
    drawn = picture(imports, {"log", "log.rows", "log.files"})
    assert ("#c00" in drawn) is in_circle
    for text in ("log/", "rows/", "files/", "disk.py"):
        assert f">{text}<" in drawn
