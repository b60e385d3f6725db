"""docs/testing.md names everything that a test may use; `tests/docs` runs the examples of the page."""

from __future__ import annotations

import re

from seqgate.gateway.testing import Broker, Cluster, Faults
from tests.support.gateway_process import REPOSITORY

PAGE = (REPOSITORY / "docs" / "testing.md").read_text()


def test_the_page_names_every_fault_and_every_method() -> None:
    prose = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`[^`]+`", prose))))
    kinds = (*Broker.__mro__, *Faults.__mro__, Cluster)
    public = {name for kind in kinds for name in vars(kind) if not name.startswith("_")}
    assert public - named <= {
        "order",
        "order_effect",
        "may_strike",
        "strike",
        "is_running",
        "directory",
        "close",
        "bootstrap",
    }
