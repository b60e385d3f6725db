"""`seqgate faults order`: the options that each fault takes, and their defaults."""

from __future__ import annotations

import inspect
import re

from seqgate.gateway.testing.control.command import order
from seqgate.gateway.testing.control.routes import DEFAULTS, FAULTS
from seqgate.gateway.testing.faults import Faults


def test_the_help_names_every_fault_with_its_options() -> None:
    rows = re.findall(r"^ +(\w+) {2,}((?:ANY|none|--).*):", order.help, re.MULTILINE)
    fields = {option: {option[2:].replace("-", "_")} for option in re.findall(r"--[\w-]+", order.help)}
    fields |= {"--kind": {"kinds"}, "ANY": {"api", "topic", "client", "times", "after"}, "none": set()}
    said = {name: [fields[word] for word in re.findall(r"--[\w-]+|ANY|none", text)] for name, text in rows}
    assert {name: set().union(*found) for name, found in said.items()} == {
        name: set(names) for name, names in FAULTS.items()
    }


def test_an_order_of_a_program_has_the_defaults_of_a_test() -> None:
    for fault, defaults in DEFAULTS.items():
        parameters = inspect.signature(getattr(Faults, fault)).parameters
        assert {name: parameters[name].default for name in defaults} == defaults
