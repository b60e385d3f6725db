"""The `seqgate backup` commands of docs/backup.md run in the order of the page."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.support.gateway_process import REPOSITORY, GatewayProcess
from tests.system.commands.clients import create_topic, produce
from tests.system.commands.conftest import seqgate

# The commands of a bucket, which stand in a block that is not run, are not indented.
COMMAND = re.compile(r"^ +seqgate ((?:backup|repair) .*)$", re.MULTILINE)
NAME = re.compile(r"\d{8}T\d{6}Z")


def test_they_run_as_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = COMMAND.findall((REPOSITORY / "docs" / "backup.md").read_text())
    assert [command.split()[:2] for command in commands] == [
        ["backup", "create"],
        ["backup", "create"],
        ["backup", "list"],
        ["backup", "verify"],
        ["repair", "--dry-run"],
        ["backup", "restore"],
    ]
    monkeypatch.chdir(tmp_path)
    with GatewayProcess(tmp_path / "data") as gateway:
        create_topic(gateway.bootstrap, "orders", 1)
        assert produce(gateway.bootstrap, "orders", 0, 77, 0, 3) == (0, 0)
        for command in commands:
            newest = max((path.name for path in (tmp_path / "backups").glob("2*")), default="")
            seqgate(*shlex.split(NAME.sub(newest, command)))
    with GatewayProcess(tmp_path / "restored") as restored:
        assert produce(restored.bootstrap, "orders", 0, 77, 0, 3) == (0, 0)
