"""docs/testing.md names everything that a test may use, and `seqgate faults order --help` what an order may
say; `tests/docs` runs the examples of the page.
"""

from __future__ import annotations

import re

from seqgate.gateway.admin.faults import order
from seqgate.gateway.testing import Broker, Cluster, Faults
from seqgate.gateway.testing.control.orders import FAULTS
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


def test_the_help_names_every_fault_with_its_options() -> None:
    rows = re.findall(r"^ +(\w+) {2,}((?:ANY|none|--).*):", order.help, re.MULTILINE)
    fields = {option: {option[2:].replace("-", "_")} for option in re.findall(r"--[\w-]+", order.help)}
    fields |= {"--kind": {"kinds"}, "ANY": {"api", "topic", "client", "times", "after"}, "none": set()}
    said = {name: [fields[word] for word in re.findall(r"--[\w-]+|ANY|none", text)] for name, text in rows}
    assert {name: set().union(*found) for name, found in said.items()} == {
        name: set(names) for name, names in FAULTS.items()
    }
