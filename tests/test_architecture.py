"""The picture of the architecture agrees with the imports."""

from __future__ import annotations

import pytest

from tests.support.architecture import PICTURE, drawn_from, picture
from tests.support.imports import ROOT


def test_the_picture_is_up_to_date() -> None:
    assert PICTURE.read_text(encoding="utf-8") == drawn_from(ROOT), "run: make architecture"


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
