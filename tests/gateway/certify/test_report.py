"""The reports: JSON with places of records, JUnit's XML with a test case for each script."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from seqgate.gateway.certify.command import (
    Certificate,
    Judgement,
    RunOutcome,
    ScriptEnd,
    Setup,
    find,
    print_scripts,
    sentences,
    write,
)
from seqgate.gateway.certify.scripts import CALM, SCRIPTS, Struck
from seqgate.gateway.testing import StoredRecord

SENT = [b"a", b"b"]


def outcome(
    number: int, verdict: Judgement, ending: ScriptEnd, *values: bytes, struck: int = 1
) -> RunOutcome:
    records = [StoredRecord("t", 0, offset, None, value, (), 0, -1) for offset, value in enumerate(values)]
    findings = find(SENT, records, ending)
    faults = [Struck("drop answer", struck)]
    return RunOutcome(SCRIPTS[number], verdict, ending, findings, faults, len(SENT), len(records), 2, 2, True)


def test_the_scripts_are_listed_as_in_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    print_scripts(as_json=True)
    listed = json.loads(capsys.readouterr().out)["scripts"]
    assert [row["name"] for row in listed] == [script.name for script in SCRIPTS]
    assert listed[0].keys() == {"name", "happens", "correct"}


OUTCOMES = [
    outcome(0, Judgement.PASSED, ScriptEnd(0, 1.0), *SENT),
    outcome(1, Judgement.FAILED, ScriptEnd(0, 1.0, errors="no \x1b[1m<room>"), b"b", b"a", b"b"),
    outcome(2, Judgement.HUNG, ScriptEnd(None, 60.0), b"a"),
    outcome(3, Judgement.NOT_STRUCK, ScriptEnd(0, 1.0), *SENT, struck=0),
    outcome(4, Judgement.GAVE_UP, ScriptEnd(7, 1.0), b"a"),
    outcome(5, Judgement.FAILED, ScriptEnd(7, 1.0, frozenset({b"b"}))),
]
CERTIFICATE = Certificate(Setup("send"), outcome(0, Judgement.PASSED, ScriptEnd(0, 1.0), *SENT), OUTCOMES)


def test_sentences_say_what_went_wrong() -> None:
    assert [list(sentences(each)) for each in OUTCOMES] == [
        [],
        ["doubled 1: 'b' (t-0: 0, 2)", "reordered 1: 'a' behind 'b' (t-0: 1, 0)"],
        ["no end after 60 s; the application was killed"],
        ["never struck: drop answer"],
        ["the application gave up with exit code 7; 1 of 2 records are stored"],
        ["lost 1: 'b'", "the application gave up with exit code 7; 0 of 2 records are stored"],
    ]


def test_json_has_the_places_of_wrong_records(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write(path, CERTIFICATE, may_give_up=False)
    report = json.loads(path.read_text())
    assert report["certified"] is False
    assert report["verdicts"] == {"passed": 1, "failed": 2, "hung": 1, "not struck": 1, "gave up": 1}
    row = report["scripts"][1]
    assert row["doubled"] == [
        {"value": "b", "places": [{"partition": 0, "offset": 0}, {"partition": 0, "offset": 2}]}
    ]
    assert row["reordered"] == [
        {"value": "a", "partition": 0, "offset": 1, "behind": {"value": "b", "partition": 0, "offset": 0}}
    ]
    assert [each["acknowledged"] for each in report["scripts"]] == [2, 2, 0, 2, 0, 1]
    assert [each["exit_code"] for each in report["scripts"]] == [0, 0, None, 0, 7, 7]


def test_xml_has_a_test_case_for_each_script(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    write(path, CERTIFICATE, may_give_up=False)
    suite = ET.parse(path).getroot()
    assert suite.attrib == {
        "name": "seqgate certify",
        "tests": "6",
        "failures": "4",
        "errors": "0",
        "skipped": "1",
        "time": "65.000",
    }
    assert [[each.tag for each in case] for case in suite] == [
        [],
        ["failure"],
        ["failure"],
        ["skipped"],
        ["failure"],
        ["failure"],
    ]
    assert suite[1][0].text == "no ?[1m<room>"
    assert suite[1][0].attrib["message"].startswith("doubled 1: 'b' (t-0: 0, 2); reordered 1")
    write(path, CERTIFICATE, may_give_up=True)
    assert ET.parse(path).getroot().attrib["failures"] == "3"


def test_a_certificate_is_good_if_every_script_passed() -> None:
    assert not CERTIFICATE.is_good(may_give_up=True)
    for verdict, is_good, may_give_up in (
        (Judgement.PASSED, True, True),
        (Judgement.GAVE_UP, False, True),
        (Judgement.NOT_STRUCK, False, False),
    ):
        one = Certificate(Setup("send"), OUTCOMES[0], [outcome(1, verdict, ScriptEnd(0, 1.0), *SENT)])
        assert one.is_good() is is_good
        assert one.is_good(may_give_up=True) is may_give_up
    assert CALM.faults == ()
