"""The metrics that the charts read are those that a gateway shows."""

from __future__ import annotations

import pytest

from seqgate.gateway.console.metrics.rates import WANTED
from seqgate.gateway.metrics.metric import MetricKind
from seqgate.gateway.metrics.table import METRICS


@pytest.mark.parametrize("name", WANTED)
def test_the_gateway_shows_the_metric(name: str) -> None:
    family = name.removesuffix("_bucket")
    assert family in METRICS
    assert (METRICS[family].kind is MetricKind.HISTOGRAM) == name.endswith("_bucket")
