"""Kills the gateway with `kill -9` again and again: the long version of `tests/faults/kill`."""

from __future__ import annotations

from pathlib import Path

from tests.faults.kill.test_kill_nine import kill_again_and_again
from tests.faults.processes.scene import Outcome, Scene, Setting, play


def run(directory: Path, seed: int, rounds: int) -> Outcome:
    """Kill the gateway `rounds` times under load, sometimes while it starts."""

    def act(scene: Scene) -> None:
        kill_again_and_again(scene.gateway, scene.producers, scene.rng, rounds)
        scene.counts["kills"] += rounds

    return play(directory, seed, act, Setting())
