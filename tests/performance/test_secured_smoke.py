"""The benchmark with TLS and logins counts correctly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.performance.brokers import SeqgateBroker
from tests.performance.loads import load_program
from tests.performance.rows import Bench, Extent, Row
from tests.performance.secured_rows import SASL_SSL, SECURED_ROWS, SSL, Security

BRIEFLY = Extent(seconds=0.3, share=0.01)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    directory = tmp_path_factory.mktemp("bench")
    return Bench(load_program(directory), directory, security=Security(directory))


@pytest.fixture(scope="module")
def seqgate(bench: Bench) -> Iterator[SeqgateBroker]:
    assert isinstance(bench.security, Security)
    directory = bench.directory / "seqgate"
    with SeqgateBroker(directory, bench.security.settings(), (SSL, SASL_SSL)) as broker:
        yield broker


@pytest.mark.parametrize("row", SECURED_ROWS, ids=lambda row: row.name)
def test_a_load_with_security_is_counted(bench: Bench, seqgate: SeqgateBroker, row: Row) -> None:
    sample = row.run(bench, seqgate, f"secured-{row.name}", BRIEFLY)
    assert sample.records > 0
    assert sample.records_per_s > 0
    assert sample.p99_ms > 0
