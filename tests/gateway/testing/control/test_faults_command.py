"""`seqgate faults order`: the options that each fault takes."""

from __future__ import annotations

import re

from seqgate.gateway.testing.control.faults_command import order
from seqgate.gateway.testing.control.routes import FAULTS


def test_the_help_names_every_fault_with_its_options() -> None:
    rows = re.findall(r"^ +(\w+) {2,}((?:ANY|none|--).*):", order.help, re.MULTILINE)
    fields = {option: {option[2:].replace("-", "_")} for option in re.findall(r"--[\w-]+", order.help)}
    fields |= {"--kind": {"kinds"}, "ANY": {"api", "topic", "client", "times", "after"}, "none": set()}
    said = {name: [fields[word] for word in re.findall(r"--[\w-]+|ANY|none", text)] for name, text in rows}
    assert {name: set().union(*found) for name, found in said.items()} == {
        name: set(names) for name, names in FAULTS.items()
    }
