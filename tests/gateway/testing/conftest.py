"""A broker for one test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from seqgate.gateway.testing import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A running broker without topics."""
    with Broker() as running:
        yield running
