"""`seqgate restart` waits for all workers of a gateway, in silence, and for its own restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqgate.gateway.admin import client
from seqgate.gateway.admin.request import ControlError, NotRunning
from seqgate.gateway.admin.restart import command
from seqgate.gateway.admin.restart.command import Restarted, RestartedGateway

Worker = str | None
"""The name of the restart that a worker began with; None while it does not run."""


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    for number in ("1", "2"):
        (tmp_path / "workers" / number).mkdir(parents=True)
    return tmp_path


def answer(monkeypatch: pytest.MonkeyPatch, rounds: list[tuple[Worker, Worker]]) -> None:
    """Let the two workers answer each question as the next round says; the last round stays."""
    asked = {"1": 0, "2": 0}

    def answer_at(place: Path, *_: object, **__: object) -> Restarted:
        number = place.name
        found = rounds[min(asked[number], len(rounds) - 1)][int(number) - 1]
        asked[number] += 1
        if found is None:
            raise NotRunning("no gateway is running")
        return Restarted([RestartedGateway(int(number), 7, found, "1", "2", 0)])

    monkeypatch.setattr(client, "_ask_at", answer_at)


def restart(data_dir: Path) -> list[RestartedGateway]:
    return command._await(data_dir, "mine", {"", "old"}, 7, lambda: False)


def test_it_waits_for_all_workers_without_a_note(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = [("old", "old"), ("old", None), (None, None), ("mine", None), ("mine", "old"), ("mine", "mine")]
    answer(monkeypatch, rounds)
    assert [each.restart for each in restart(data_dir)] == ["mine", "mine"]
    assert capsys.readouterr().err == ""


def test_it_ends_once_the_gateway_has_done_another_restart(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, [("old", "old"), ("other", None), ("other", "other")])
    with pytest.raises(ControlError, match="another restart was ordered at the same time"):
        restart(data_dir)
