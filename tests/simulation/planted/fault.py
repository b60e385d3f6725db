"""A mistake planted in production code for the length of a `with`, and the list of all of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

from tests.simulation.worlds import World

Change = tuple[Any, str, Any]
"""An owner, the name of one of its attributes, and the value that replaces it."""
Changes = Callable[[], list[Change]]


@dataclass(frozen=True)
class Fault:
    """A planted fault. `mistake` is the realistic mistake of an engineer that it stands for.

    `profiles` name the runs that meet the fault soonest; without profiles all runs are tried. `world` says in
    which runs: of a gateway on a local disk, of one in a bucket, or of several gateways.
    """

    name: str
    mistake: str
    changes: Changes
    profiles: tuple[str, ...] = ()
    world: World = World.DISK

    def plant(self) -> AbstractContextManager[Any]:
        """Put the mistake into the code that runs inside of the `with` block."""
        stack = ExitStack()
        for owner, name, replacement in self.changes():
            stack.enter_context(mock.patch.object(owner, name, replacement))
        return stack


FAULTS: dict[str, Fault] = {}
SOUGHT: dict[str, Fault] = {}
"""The planted faults that no seed has shown yet. Only `--fault` hunts them. One that is found moves to
`FAULTS`.
"""


def fault_in(
    *profiles: str, world: World = World.DISK, is_found: bool = True
) -> Callable[[Changes], Changes]:
    """Register a planted fault under its function's name; the docstring names the mistake."""

    def register(changes: Changes) -> Changes:
        name = changes.__name__
        assert changes.__doc__
        faults = FAULTS if is_found else SOUGHT
        faults[name] = Fault(name, " ".join(changes.__doc__.split()), changes, profiles, world)
        return changes

    return register


fault = fault_in()
bucket_fault = fault_in(world=World.BUCKET)
cluster_fault_in = partial(fault_in, world=World.CLUSTER)
"""Registers a fault of several gateways."""
share_fault_in = partial(fault_in, world=World.SHARES)
"""Registers a fault in the work of share groups."""
