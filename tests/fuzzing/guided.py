"""One guided run of one target, in a process of its own: libFuzzer ends the process after the run.

    python -m tests.fuzzing.guided TARGET DIRECTORY [libFuzzer's options]

DIRECTORY gets new inputs that reach new code (`found/`), inputs that break something (`crash-*`), and the
numbers of inputs and bytes (`counts`).
"""

from __future__ import annotations

import faulthandler
import logging
import mmap
import random
import sys
from pathlib import Path

import atheris

from tests.fuzzing import corpus
from tests.fuzzing.run import COUNTS, TELLS_WHERE

PRODUCT = ["seqgate"]


class Counter:
    """Counters that outlive the process however it ends."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(COUNTS.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), COUNTS.size)
        self._inputs = self._bytes = 0

    def fed(self, data: bytes) -> None:
        self._inputs += 1
        self._bytes += len(data)
        COUNTS.pack_into(self._map, 0, self._inputs, self._bytes)


def main(name: str, directory: Path, options: list[str]) -> None:
    with atheris.instrument_imports(include=PRODUCT, enable_loader_override=False):
        from tests.fuzzing.target import load

        target = load(name)
    from tests.fuzzing.limits import check_work

    found = directory / "found"
    found.mkdir(exist_ok=True)
    for number, data in enumerate([*target.seeds(), *corpus.kept(name)]):
        (found / f"seed-{number:04d}").write_bytes(data)
    faulthandler.register(TELLS_WHERE, all_threads=True)
    logging.getLogger().addHandler(logging.NullHandler())  # libFuzzer would report millions of inputs
    counter = Counter(directory / "counts")

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < 0.5:
            mutated = target.mutated(data, chance)
            if 0 < len(mutated) <= max_size and chance.random() < 0.7:
                return mutated
            data = mutated[:max_size] or data
        return bytes(atheris.Mutate(data, max_size))

    with target.opened() as run:

        def feed(data: bytes) -> None:
            counter.fed(data)
            check_work(target, run, data)

        arguments = [
            f"-max_len={target.MAX_INPUT_BYTES}",
            f"-artifact_prefix={directory}/",
            "-print_final_stats=1",
            "-timeout=60",
            "-rss_limit_mb=2048",
            *options,
            str(found),
        ]
        atheris.Setup([sys.argv[0], *arguments], feed, custom_mutator=mutate)
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
