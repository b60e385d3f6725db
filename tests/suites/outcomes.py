"""Reads what the runners of other languages report: each test's name, and whether it passed, failed or was
skipped.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

PASSED: Final = "passed"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"

Outcomes = Mapping[str, str]
Read = Callable[[str, Path], Outcomes]
"""Takes the runner's output and the path of its report, which it may not have written; returns the outcomes.
"""

_GO: Final = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+)", re.MULTILINE)
_GO_BEGUN: Final = re.compile(r"^=== RUN\s+(\S+)", re.MULTILINE)
_GO_OUTCOMES: Final = {"PASS": PASSED, "FAIL": FAILED, "SKIP": SKIPPED}
_PYTEST: Final = re.compile(r"^(\S+::.+?) *(PASSED|FAILED|ERROR|SKIPPED|$)", re.MULTILINE)
_PYTEST_OUTCOMES: Final = {"PASSED": PASSED, "SKIPPED": SKIPPED}
_RDKAFKA: Final = re.compile(r"=====+ Test (\S+) (PASSED|FAILED|SKIPPED)\b")
_RDKAFKA_BEGUN: Final = re.compile(r"=====+ Running test (\S+) ====")
_RDKAFKA_OUTCOMES: Final = {"PASSED": PASSED, "FAILED": FAILED, "SKIPPED": SKIPPED}
_JEST: Final = re.compile(r"^(PASS|FAIL) (\S+)", re.MULTILINE)
_JEST_PRINTED: Final = {"PASS": PASSED, "FAIL": FAILED}
_JEST_OUTCOMES: Final = {"passed": PASSED, "failed": FAILED, "pending": SKIPPED, "todo": SKIPPED}


def of_go(output: str, _: Path) -> Outcomes:
    """Read `go test -v`. A test that began and did not end has failed: the time limit, or a panic, ended all."""
    found = dict.fromkeys(_GO_BEGUN.findall(output), FAILED)
    found.update({name: _GO_OUTCOMES[outcome] for outcome, name in _GO.findall(output)})
    return found


def of_pytest(output: str, report: Path) -> Outcomes:
    """Read `pytest --junit-xml`; what `pytest -v` printed, where the time limit ended it before its report."""
    if not report.exists():
        return {name: _PYTEST_OUTCOMES.get(word, FAILED) for name, word in _PYTEST.findall(output)}
    found = {}
    for case in ET.fromstring(report.read_bytes()).iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = FAILED if kinds & {"failure", "error"} else SKIPPED if "skipped" in kinds else PASSED
        found[f"{case.get('classname')}.{case.get('name')}"] = outcome
    return found


def of_librdkafka(output: str, _: Path) -> Outcomes:
    """Read the lines of librdkafka's test-runner. A test that began and did not end has failed."""
    found = dict.fromkeys(_RDKAFKA_BEGUN.findall(output), FAILED)
    found.update({name: _RDKAFKA_OUTCOMES[outcome] for name, outcome in _RDKAFKA.findall(output)})
    return found


def of_jest(output: str, report: Path) -> Outcomes:
    """Read `jest --json --outputFile`. A file that could not be run counts as one test. Without a report,
    because the time was up, each file counts as one that jest has printed.
    """
    if not report.exists():
        return {path: _JEST_PRINTED[word] for word, path in _JEST.findall(output)}
    found = {}
    for file in json.loads(report.read_bytes())["testResults"]:
        place = "/".join(Path(file["name"]).parts[-2:])
        if not file["assertionResults"]:
            found[place] = FAILED
        for test in file["assertionResults"]:
            found[f"{place}: {test['fullName']}"] = _JEST_OUTCOMES[test["status"]]
    return found


def summary(outcomes: Outcomes) -> str:
    counts = Counter(outcomes.values())
    return f"{counts[PASSED]} passed, {counts[FAILED]} failed, {counts[SKIPPED]} skipped"


def worse(one: Outcomes, several: Outcomes) -> list[str]:
    """Return the tests that pass against one gateway, and not against several."""
    return sorted(
        name for name, found in one.items() if found == PASSED and several.get(name, FAILED) == FAILED
    )
