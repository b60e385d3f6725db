"""docs/limits.md names only settings and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

from seqgate.gateway.config import SETTINGS
from seqgate.gateway.config.groups import GROUP_CONFIGS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
ROWS = [line.split("|")[1:-1] for line in PAGE.splitlines() if line.startswith("| ") and "---" not in line]


def test_its_settings_exist() -> None:
    known = {setting.name for setting in SETTINGS} | {entry.setting.name for entry in GROUP_CONFIGS}
    named = {name for row in ROWS for name in re.findall(r"`([a-z0-9.]+)`", row[1])}
    assert len(named) > 40
    assert not named - known


def test_its_tests_exist() -> None:
    for row in ROWS[1:]:
        for name in re.findall(r"`(\S+)`", row[3]):
            folder = ROOT if name.startswith("tests/") else ROOT / "tests" / "faults" / "hostile"
            assert (folder / name).exists(), name


def test_every_limit_that_clients_meet_is_on_the_page() -> None:
    limits = {setting.name for setting in SETTINGS if re.search(r"^seqgate\..*\bmax\b", setting.name)}
    not_of_clients = {
        "seqgate.flush.inline.max.ms",
        "seqgate.deletion.max.files.per.second",
        "seqgate.deletion.max.bytes.per.second",
        "seqgate.cluster.put.max.bytes",
        "seqgate.cluster.wal.max.bytes",
        "seqgate.metrics.topics.max",
        "seqgate.metrics.groups.max",
    }
    named = set(re.findall(r"`([a-z0-9.]+)`", PAGE))
    assert not limits - named - not_of_clients
