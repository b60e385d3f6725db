"""The parts of a soak, and each part's share of the time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """A part: `module` takes --seconds, --seed and the `options`, and prints a line of JSON at its end;
    `weight` is its share of the time.
    """

    name: str
    module: str
    does: str
    weight: float
    options: tuple[str, ...] = ()


PARTS = (
    Part("disk", "tests.faults.soak", "a disk that fails, tears, forgets and flips bits", 2),
    Part("names", "tests.properties.random_names", "what is remembered of producer names, beside a model", 1),
    Part("simulation", "tests.simulation", "whole gateways with their clients in virtual time", 4),
    Part(
        "clusters",
        "tests.simulation",
        "several gateways over one bucket with their clients in virtual time",
        4,
        ("--cluster",),
    ),
    Part("bucket", "tests.properties.wal_soak", "gateways that follow each other in a failing bucket", 1),
    Part("planted faults", "tests.simulation.plant", "mistakes planted in the code, which must be found", 2),
    Part("random tests", "tests.soak.random_tests", "the random tests of make test, from new seeds", 2),
    Part(
        "processes", "tests.faults.processes.soak", "real clients while real processes are killed and hung", 2
    ),
    Part(
        "every client", "tests.faults.every_client", "every client at once on three gateways of a bucket", 2
    ),
    Part(
        "deduplication", "tests.faults.deduplication.soak", "applications that are killed and send again", 2
    ),
    Part(
        "random requests",
        "tests.compat.differential.random",
        "random sequences of requests, sent to Apache Kafka too",
        2,
    ),
    Part("fuzzing", "tests.fuzzing", "coverage-guided hostile bytes", 2),
    Part("connections", "tests.faults.hostile.soak", "hostile connections", 1),
)
