"""Mistakes planted in the production code, to prove that the simulation and its checkers find them."""

from __future__ import annotations

from tests.simulation.planted import (
    compacting,
    coordinators,
    durability,
    naming,
    producers,
    reading,
    recovering,
    taking_over,
    uploading,
)
from tests.simulation.planted.fault import FAULTS, Fault

__all__ = [
    "FAULTS",
    "Fault",
    "compacting",
    "coordinators",
    "durability",
    "naming",
    "producers",
    "reading",
    "recovering",
    "taking_over",
    "uploading",
]
