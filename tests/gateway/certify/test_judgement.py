"""What counts as lost, doubled, reordered or unexpected, and which verdict follows."""

from __future__ import annotations

import pytest

from seqgate.gateway.certify.command import Doubled, Findings, Judgement, ScriptEnd, find, judge
from seqgate.gateway.certify.scripts import Struck
from seqgate.gateway.testing import StoredRecord

SENT = [b"a", b"b", b"c"]
FINISHED, GAVE_UP, HUNG = ScriptEnd(0, 1.0), ScriptEnd(3, 1.0), ScriptEnd(None, 60.0)
STRUCK, SPARED = Struck("drop answer", 1), Struck("close", 0)
NOTHING = Findings([], [], [], [])


def stored(*values: bytes | None, partition: int = 0) -> list[StoredRecord]:
    return [
        StoredRecord("t", partition, offset, None, value, (), 0, -1) for offset, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("records", "ending", "complaints"),
    [
        (stored(*SENT), FINISHED, []),
        (stored(b"a", b"c") + stored(b"b", partition=1), FINISHED, []),
        (stored(b"a", b"b"), FINISHED, ["lost 1: 'c'"]),
        (stored(b"a", b"b"), GAVE_UP, []),
        (stored(), HUNG, []),
        (stored(b"a"), ScriptEnd(3, 1.0, frozenset({b"a", b"b"})), ["lost 1: 'b'"]),
        (stored(), ScriptEnd(None, 1.0, frozenset({b"a"})), ["lost 1: 'a'"]),
        (stored(b"a", b"b", b"b", b"c"), FINISHED, ["doubled 1: 'b' (t-0: 1, 2)"]),
        (
            stored(b"a", b"b", b"a") + stored(b"c", b"a", partition=1),
            FINISHED,
            ["doubled 1: 'a' (t-0: 0, 2, t-1: 1)", "reordered 1: 'a' behind 'c' (t-1: 1, 0)"],
        ),
        (stored(b"b", b"a", b"c"), GAVE_UP, ["reordered 1: 'a' behind 'b' (t-0: 1, 0)"]),
        (stored(b"c", b"x", None), GAVE_UP, ["unexpected 2: 'x' (t-0: 1), null (t-0: 2)"]),
    ],
)
def test_each_wrong_record_is_found_with_its_offsets(
    records: list[StoredRecord], ending: ScriptEnd, complaints: list[str]
) -> None:
    assert list(find(SENT, records, ending).complaints()) == complaints


def test_many_records_are_counted_and_the_first_are_named() -> None:
    values = [b"%d" % number for number in range(9)]
    (complaint,) = find(values, [], FINISHED).complaints()
    assert complaint == "lost 9: '0', '1', '2' and 6 more"


@pytest.mark.parametrize(
    ("findings", "ending", "struck", "may_give_up", "verdict"),
    [
        (NOTHING, FINISHED, [STRUCK], False, Judgement.PASSED),
        (NOTHING, GAVE_UP, [STRUCK], False, Judgement.GAVE_UP),
        (NOTHING, GAVE_UP, [STRUCK], True, Judgement.PASSED),
        (NOTHING, HUNG, [STRUCK], True, Judgement.HUNG),
        (NOTHING, FINISHED, [STRUCK, SPARED], False, Judgement.NOT_STRUCK),
        (NOTHING, GAVE_UP, [SPARED], True, Judgement.NOT_STRUCK),
        (NOTHING, FINISHED, [], False, Judgement.NOT_STRUCK),
        (NOTHING, HUNG, [SPARED], False, Judgement.HUNG),
        (Findings([b"a"], [], [], []), HUNG, [SPARED], True, Judgement.FAILED),
        (Findings([], [Doubled(b"a", [])], [], []), FINISHED, [STRUCK], False, Judgement.FAILED),
    ],
)
def test_what_is_worse_comes_first(
    findings: Findings, ending: ScriptEnd, struck: list[Struck], may_give_up: bool, verdict: Judgement
) -> None:
    assert judge(findings, ending, struck, may_give_up=may_give_up) is verdict


def test_endings_are_named() -> None:
    assert [str(each) for each in (FINISHED, GAVE_UP, HUNG)] == [
        "finished",
        "gave up with exit code 3",
        "hung",
    ]
