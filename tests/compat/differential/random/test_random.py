"""Random sequences of requests, sent to Seqgate and to Apache Kafka: the same answers, and the same state
afterwards.

`make soak` draws other seeds, and prints how to replay a sequence whose answers differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.compat.differential.random.running import WORLDS, Pair
from tests.compat.differential.random.shrinking import shrunk
from tests.conftest import AS_THE_PEER
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_peer import KafkaPeer

SEQUENCES = {
    "groups": 12,
    "transactions": 12,
    "produce": 12,
    "fetch": 12,
    "share": 4,
    "streams": 12,
    "admin": 5,
}
"""The number of seeds that `make test` runs of each family, each in a few seconds."""


@pytest.fixture(scope="module")
def pair(kafka: KafkaPeer, shared_gateway: GatewayProcess) -> Pair:
    return Pair(kafka.bootstrap, shared_gateway.bootstrap)


@pytest.mark.parametrize("family", WORLDS)
def test_the_same_sequences_have_the_same_answers(family: str, pair: Pair) -> None:
    found = [pair.run(family, seed)[0] for seed in range(SEQUENCES[family])]
    assert not any(found), "\n".join(str(one) for one in found if one)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    directory: Path = tmp_path_factory.mktemp("planted")
    wrong = {**AS_THE_PEER, "offset.metadata.max.bytes": "9000"}
    with (
        GatewayProcess(directory / "right", settings=AS_THE_PEER) as right,
        GatewayProcess(directory / "wrong", settings=wrong) as other,
    ):
        yield Pair(right.bootstrap, other.bootstrap)


class TestTheTestItself:
    """Two gateways with different limits: the test finds the difference, and shrinks the sequence to the step
    that shows it.
    """

    def test_a_planted_difference_is_found_and_shrunk(self, planted: Pair) -> None:
        results = (planted.run("transactions", seed)[0] for seed in range(50))
        found = next(one for one in results if one is not None)
        assert "large_metadata" in [step.name for step in found.steps]
        assert len(found.steps) <= 3
        assert (found.difference.kafka, found.difference.gateway) == (12, 0)
        assert f"transactions with seed {found.seed} differs" in str(found)

    def test_alike_endpoints_do_not_differ(self, planted: Pair) -> None:
        assert [planted.run("groups", seed)[0] for seed in range(5)] == [None] * 5

    def test_a_seed_makes_the_same_steps(self) -> None:
        for world in WORLDS.values():
            first, again, other = (world.draw(Random(f"{world.family} {seed}")) for seed in (1, 1, 2))
            assert first == again != other


class TestShrinking:
    @pytest.mark.parametrize("needed", [set(), {0}, {7}, {3, 4}, {0, 15}, {2, 9, 11}])
    def test_what_is_needed_stays(self, needed: set[int]) -> None:
        assert shrunk(range(16), lambda fewer: needed <= set(fewer)) == sorted(needed)

    def test_it_ends_after_so_many_attempts(self) -> None:
        tried: list[int] = []

        def differs(fewer: object) -> bool:
            tried.append(1)
            return False

        assert shrunk(range(1_000), differs, 10) == list(range(1_000))
        assert len(tried) == 10
