"""The scripts themselves: there are thirty, each can be named, and what they order is what the broker has."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from docs.pages import scripts_page
from seqgate.gateway.certify.command import BURSTS
from seqgate.gateway.certify.scripts import CALM, LATE_FACTOR, SCRIPTS, RequestFault, Scene, Script, named
from seqgate.gateway.testing import Broker
from seqgate.gateway.testing.faults import Effect, Kind

TOPIC = "t"


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def scene(shared: Broker) -> Scene:
    shared.reset()
    shared.create_topic(TOPIC)
    return Scene(shared, TOPIC, 1, 7, 1.0, threading.Event())


def test_there_are_thirty_with_names_of_their_own() -> None:
    assert len({script.name for script in SCRIPTS}) == len(SCRIPTS) == 30
    assert CALM not in SCRIPTS


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_each_script_breaks_something_and_repairs_it(scene: Scene, script: Script) -> None:
    script.begin(scene)
    assert bool(script.faults) or script.act is not None
    assert 0 <= script.act_at < BURSTS
    if not script.has_topic:
        scene.broker.reset()
    scene.has_ended.set()
    bursts = 0 if script.act is None else sum(1 for _ in script.act(scene))
    assert script.act_at + bursts < BURSTS
    assert scene.broker.topics() == [TOPIC]
    assert [each.times for each in scene.struck()] == [0] * len(scene.struck())
    assert scene.struck()


def test_a_late_answer_comes_after_the_request_timeout(scene: Scene) -> None:
    fault = RequestFault(Effect(Kind.DELAY)).order(scene)
    assert str(fault).startswith(f"delay {LATE_FACTOR * 1000:.0f} ms")


def test_scripts_are_chosen_by_name() -> None:
    assert [script.name for script in named(["power-cut", "first-answer-lost"])] == [
        "first-answer-lost",
        "power-cut",
    ]
    with pytest.raises(ValueError, match="'first' is not the name of a script; `seqgate certify --list`"):
        named(["power-cut", "first"])


def test_the_page_has_a_row_for_each_script() -> None:
    rows = [line for line in scripts_page().splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == [script.name for script in SCRIPTS]
