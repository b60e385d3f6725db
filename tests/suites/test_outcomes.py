from __future__ import annotations

import json
from pathlib import Path

from tests.suites.outcomes import (
    FAILED,
    PASSED,
    SKIPPED,
    of_go,
    of_jest,
    of_librdkafka,
    of_pytest,
    summary,
    worse,
)


def test_a_go_test_that_did_not_end_has_failed(tmp_path: Path) -> None:
    output = """\
=== RUN   TestA
=== RUN   TestA/one
--- PASS: TestA (0.10s)
    --- PASS: TestA/one (0.05s)
=== RUN   TestB
--- SKIP: TestB (0.00s)
=== RUN   TestC
panic: test timed out after 1s
"""
    found = of_go(output, tmp_path)
    assert found == {"TestA": PASSED, "TestA/one": PASSED, "TestB": SKIPPED, "TestC": FAILED}
    assert summary(found) == "2 passed, 1 failed, 1 skipped"


def test_a_report_of_pytest(tmp_path: Path) -> None:
    report = tmp_path / "report"
    report.write_text(
        '<testsuites><testsuite><testcase classname="c" name="a"/>'
        '<testcase classname="c" name="b"><failure message="x"/></testcase>'
        '<testcase classname="c" name="d"><skipped/></testcase></testsuite></testsuites>'
    )
    assert of_pytest("", report) == {"c.a": PASSED, "c.b": FAILED, "c.d": SKIPPED}


def test_pytest_that_was_ended_before_its_report(tmp_path: Path) -> None:
    output = (
        "test/x.py::test_a[1 2] PASSED   [ 10%]\ntest/x.py::test_b SKIPPED (no) [ 20%]\ntest/x.py::test_c "
    )
    found = of_pytest(output, tmp_path / "report")
    assert found == {
        "test/x.py::test_a[1 2]": PASSED,
        "test/x.py::test_b": SKIPPED,
        "test/x.py::test_c": FAILED,
    }


def test_the_lines_of_librdkafka(tmp_path: Path) -> None:
    output = """\
[0001_multiobj / 0.002s] ================= Running test 0001_multiobj =================
[0002_unkpart / 0.002s] ================= Running test 0002_unkpart =================
[0003_msgmaxsize / 0.002s] ================= Running test 0003_msgmaxsize =================
\x1b[32m[0001_multiobj / 1.002s] ================= Test 0001_multiobj PASSED =================
\x1b[31m[0002_unkpart / 1.002s] ================= Test 0002_unkpart SKIPPED (why) =================
"""
    found = {"0001_multiobj": PASSED, "0002_unkpart": SKIPPED, "0003_msgmaxsize": FAILED}
    assert of_librdkafka(output, tmp_path) == found


def test_a_report_of_jest(tmp_path: Path) -> None:
    report = tmp_path / "report"
    tests = [{"fullName": "A b", "status": "passed"}, {"fullName": "A c", "status": "pending"}]
    files = [
        {"name": "/x/src/a/b.spec.js", "assertionResults": tests},
        {"name": "/x/src/a/c.spec.js", "assertionResults": []},
    ]
    report.write_text(json.dumps({"testResults": files}))
    assert of_jest("", report) == {
        "a/b.spec.js: A b": PASSED,
        "a/b.spec.js: A c": SKIPPED,
        "a/c.spec.js": FAILED,
    }


def test_what_passes_against_one_gateway_only() -> None:
    one = {"a": PASSED, "b": PASSED, "c": FAILED, "d": PASSED, "e": PASSED}
    assert worse(one, {"a": PASSED, "b": FAILED, "c": PASSED, "d": SKIPPED}) == ["b", "e"]
