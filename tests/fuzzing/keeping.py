"""Chooses the inputs to keep: the fewest that together cover the same code as all inputs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tests.fuzzing import corpus
from tests.fuzzing.target import Run, load

ROOT = Path(__file__).parents[2]
PRODUCT = str(ROOT / "src" / "seqgate")
Arc = tuple[str, int, int]


def keep_fewest(name: str, paths: Sequence[Path]) -> None:
    """Keep the inputs that cover a pair of consecutive lines which no kept input covers."""
    logging.getLogger().addHandler(logging.NullHandler())
    target = load(name)
    with target.opened() as run:
        reached: set[Arc] = set()
        for data in [*target.seeds(), *corpus.kept(name)]:
            reached |= arcs_of(run, data)
        offered = {data: arcs_of(run, data) - reached for data in {path.read_bytes() for path in paths}}
    chosen = []
    while True:
        offered = {data: arcs - reached for data, arcs in offered.items() if arcs - reached}
        if not offered:
            break
        best = max(offered, key=lambda data: (len(offered[data]), -len(data), data))
        reached |= offered[best]
        chosen.append(best)
    corpus.keep(name, chosen, "found by a guided run")
    print(f"{name}: {len(chosen)} inputs kept", file=sys.stderr)


def arcs_of(run: Run, data: bytes) -> set[Arc]:
    """Return the pairs of consecutive lines that an input covers."""
    arcs: set[Arc] = set()
    last: dict[FrameType, int] = {}

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if event == "call":
            return trace if _is_product(frame.f_code) else None
        if event == "line":
            arcs.add((frame.f_code.co_filename, last.get(frame, -1), frame.f_lineno))
            last[frame] = frame.f_lineno
        elif event == "return":
            last.pop(frame, None)
        return trace

    sys.settrace(trace)
    try:
        run(data)
    except Exception:
        return set()
    finally:
        sys.settrace(None)
    return arcs


def _is_product(code: CodeType) -> bool:
    return code.co_filename.startswith(PRODUCT)
