"""Four client libraries at once on a gateway under faults, and the check of the stored records.

Each of these tests is a function that gets a `Scene` and causes faults; `play` does everything before and
after.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple, Protocol

from tests.faults.kill.checker import SHOWN, check
from tests.faults.kill.load import (
    LIBRARIES,
    REQUEST_TIMEOUT_MS,
    KillableGateway,
    Producers,
    create_topic,
    fixed_port,
)
from tests.support.gateway_process import REPOSITORY
from tests.support.read_back import read_back

TOPIC = "suffering"
PARTITIONS = 4
WAIT_S = 60.0
POLL_S = 0.01
COMMAND_TIMEOUT_S = 60.0


def until(condition: Callable[[], object], what: str, timeout_s: float = WAIT_S) -> None:
    """Wait until the condition holds; fail with `what` after a limit."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        # The pause between polls of foreign processes, which offer nothing to wait on.
        time.sleep(POLL_S)


@dataclass
class Outcome:
    """The counts by name, and the breaches as sentences."""

    counts: Counter[str] = field(default_factory=Counter)
    breaches: list[str] = field(default_factory=list)

    def merge(self, other: Outcome) -> None:
        self.counts.update(other.counts)
        self.breaches += other.breaches


def examined(gateway: KillableGateway, producers: Producers) -> Outcome:
    """Compare the records that were read back with the producers' answers."""
    rows = read_back(gateway.bootstrap, TOPIC, PARTITIONS)
    breaches = check(producers.ledgers, rows)
    counts = Counter(
        {
            "records checked": sum(map(len, rows.values())),
            "records acknowledged": producers.acknowledged,
            "records given up by clients": sum(len(ledger.failed) for ledger in producers.ledgers),
            "records lost": sum(breach.endswith("is lost") for breach in breaches),
            "records doubled": sum("is doubled" in breach for breach in breaches),
        }
    )
    return Outcome(counts, told(breaches))


def told(breaches: Sequence[str]) -> list[str]:
    """Return the first breaches, and their number if there are more."""
    more = [f"{len(breaches)} breaches in all"] if len(breaches) > SHOWN else []
    return [*breaches[:SHOWN], *more]


class Load(NamedTuple):
    """The producers of a scene, and the check of what they have stored."""

    producers: type[Producers]
    examined: Callable[[KillableGateway, Producers], Outcome]


IDEMPOTENT = Load(Producers, examined)


@dataclass
class Scene:
    """A gateway under load from several client libraries."""

    rng: Random
    directory: Path
    gateway: KillableGateway
    producers: Producers
    outcome: Outcome

    @property
    def counts(self) -> Counter[str]:
        return self.outcome.counts


Act = Callable[[Scene], None]


class Way(Protocol):
    """The path between clients and gateway."""

    @property
    def address(self) -> str: ...


def direct(gateway: KillableGateway) -> AbstractContextManager[None]:
    return nullcontext(None)


@dataclass(frozen=True)
class Setting:
    """The place of a scene. `way` returns the address that clients connect to; None means the gateway's own."""

    settings: Mapping[str, str] = field(default_factory=dict)
    configs: Mapping[str, int] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    under: Sequence[str] = ()
    load: Load = IDEMPOTENT
    libraries: Sequence[str] = LIBRARIES
    request_timeout_ms: int = REQUEST_TIMEOUT_MS
    way: Callable[[KillableGateway], AbstractContextManager[Way | None]] = direct
    data_dir: Path | None = None


def play(directory: Path, seed: int, act: Act, setting: Setting) -> Outcome:
    """Start the gateway and the producers, cause faults, let the producers finish, and check the stored
    records.
    """
    directory.mkdir(parents=True, exist_ok=True)
    rng = Random(seed)
    gateway = KillableGateway(
        setting.data_dir or directory / "data",
        settings=dict(setting.settings),
        port=fixed_port(),
        environment=setting.environment,
        under=setting.under,
    )
    gateway.stderr_path = directory / "gateway.stderr"
    outcome = Outcome()
    with gateway, setting.way(gateway) as way:
        create_topic(gateway.bootstrap, TOPIC, PARTITIONS, **setting.configs)
        bootstrap = gateway.bootstrap if way is None else way.address
        with setting.load.producers(
            bootstrap, TOPIC, PARTITIONS, directory, setting.libraries, setting.request_timeout_ms
        ) as producers:
            producers.await_further(1)
            act(Scene(rng, directory, gateway, producers, outcome))
            producers.finish()
            print(producers.summary())
            outcome.merge(setting.load.examined(gateway, producers))
    if any(word in gateway.stderr_text() for word in ("Traceback", "Fatal error")):
        outcome.breaches.append("the gateway logged an unexpected exception")
    return outcome


def command(gateway: KillableGateway, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `seqgate WORDS --data-dir ...` while the gateway runs."""
    return subprocess.run(
        [sys.executable, "-m", "seqgate", *words, "--data-dir", str(gateway.data_dir)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
