"""Every moment at which the power could go, and what it could leave.

A life is lived once; before each of its operations the disk and what is known of it are copied. From each copy come the
states that a power cut could leave there: nothing or everything of what was not durable, all parts where they are few, and
parts by chance where they are many. States that were seen already, with the same known of them, are left out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

from tests.faults.disk_contents import Enumeration
from tests.faults.simulated_disk import SimulatedDisk

Known = TypeVar("Known")
FEW = 24
"""So many states are gone through one by one."""


class Image(NamedTuple, Generic[Known]):
    """The disk right before an operation."""

    number: int
    operation: str
    disk: SimulatedDisk
    known: Known


class Left(NamedTuple):
    """What one power cut left, and words to find it again."""

    described: str
    disk: SimulatedDisk


def images(disk: SimulatedDisk, live: Callable[[], object], known: Callable[[], Known]) -> list[Image[Known]]:
    """Live on the disk; the last image is of its end."""
    taken: list[Image[Known]] = []

    def take(operation: str) -> None:
        taken.append(Image(disk.plan.operations + 1, operation, disk.copy(), known()))

    disk.before_operation = take
    live()
    take("the end")
    disk.before_operation = None
    return taken


def left_by_power_cut(image: Image[object], samples: int, seen: set[object] | None = None) -> Iterator[Left]:
    """What the power could leave; all of it where that is few, else `samples` and both extremes."""
    seen = set() if seen is None else seen
    for seed, left in _states(image, samples):
        key = left.fingerprint(), image.known.__repr__()
        if key not in seen:
            seen.add(key)
            yield Left(f"operation {image.number} ({image.operation}), {seed}", left)


def _states(image: Image[object], samples: int) -> Iterator[tuple[str, SimulatedDisk]]:
    for seed, words in ((0, "nothing of what is not durable"), (1, "everything")):
        left = image.disk.copy()
        left.power_cut_by_seed(seed)
        yield words, left
    every = _every_part(image.disk)
    if every is not None:
        for number, left in enumerate(every):
            yield f"part {number}", left
        samples //= 2
    for sample in range(samples):
        seed = 2 + sample + 1000 * image.number
        left = image.disk.copy()
        left.power_cut(random.Random(seed))
        yield f"seed {seed}", left


def _every_part(disk: SimulatedDisk) -> list[SimulatedDisk] | None:
    """Each subset of whole writes and of names, unless there are many."""
    found = []
    choices = Enumeration()
    while len(found) < FEW:
        left = disk.copy()
        left.power_cut(choices, tears=False)
        found.append(left)
        if not choices.advance():
            return found
    return None
