from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.cluster.wal.session_wal import Confirmations, ObjectOutcome, ObjectStep, judge
from seqgate.gateway.cluster.wal.wal_object import (
    END_BYTES,
    FOOTER_BYTES,
    Seal,
    WalObject,
    encode,
    encode_seal,
)

NONCE = bytes(16)
KEY = "wal/1/4/00000000000000000009"


def content(seq: int = 9, nonce: bytes = NONCE) -> bytes:
    return b"".join(encode(WalObject(1, 4, seq, nonce, [], [])))


def sent(count: int, window: int = 10) -> Confirmations:
    rules = Confirmations(window)
    for _ in range(count):
        rules.add()
    rules.due()
    return rules


class TestWindow:
    def test_objects_are_sent_in_order_and_once(self) -> None:
        rules = Confirmations(2)
        assert [rules.add() for _ in range(5)] == [0, 1, 2, 3, 4]
        assert list(rules.due()) == [0, 1]
        assert list(rules.due()) == []

    def test_what_is_own_behind_a_hole_makes_no_room(self) -> None:
        rules = sent(5, window=2)
        rules.after(1, ObjectOutcome.CREATED)
        assert list(rules.confirm()) == []
        assert list(rules.due()) == []
        rules.after(0, ObjectOutcome.CREATED)
        assert list(rules.confirm()) == [0, 1]
        assert list(rules.due()) == [2, 3]

    def test_a_fenced_session_sends_nothing(self) -> None:
        rules = sent(5, window=2)
        rules.after(0, ObjectOutcome.CREATED)
        rules.after(1, ObjectOutcome.SEALED)
        assert list(rules.due()) == []


class TestOrder:
    @given(st.permutations(range(6)), st.sampled_from([ObjectOutcome.CREATED, ObjectOutcome.OURS]))
    def test_any_order_of_answers_confirms_prefixes(self, order: list[int], outcome: ObjectOutcome) -> None:
        rules = sent(6)
        confirmed: list[int] = []
        known = set()
        for seq in order:
            assert rules.after(seq, outcome) is ObjectStep.REST
            known.add(seq)
            confirmed += rules.confirm()
            assert confirmed == list(range(len(confirmed)))
            assert set(confirmed) <= known
            assert len(confirmed) not in known
        assert confirmed == list(range(6))

    def test_an_object_that_is_known_twice_is_confirmed_once(self) -> None:
        rules = sent(2)
        rules.after(0, ObjectOutcome.CREATED)
        assert list(rules.confirm()) == [0]
        rules.after(0, ObjectOutcome.OURS)
        assert list(rules.confirm()) == []


class TestFailures:
    @pytest.mark.parametrize(
        ("outcome", "step"),
        [
            (ObjectOutcome.UNKNOWN, ObjectStep.LOOK),
            (ObjectOutcome.TAKEN, ObjectStep.LOOK),
            (ObjectOutcome.UNREAD, ObjectStep.LOOK),
            (ObjectOutcome.MISSING, ObjectStep.CREATE),
        ],
    )
    def test_nothing_is_confirmed_by_a_call_that_failed(
        self, outcome: ObjectOutcome, step: ObjectStep
    ) -> None:
        rules = sent(1)
        assert rules.after(0, outcome) is step
        assert list(rules.confirm()) == []
        assert not rules.is_fenced

    @pytest.mark.parametrize("outcome", [ObjectOutcome.SEALED, ObjectOutcome.FOREIGN])
    def test_nothing_is_confirmed_after_the_fence(self, outcome: ObjectOutcome) -> None:
        rules = sent(3)
        rules.after(0, ObjectOutcome.CREATED)
        assert rules.after(1, outcome) is ObjectStep.REST
        assert rules.is_fenced
        assert rules.after(2, ObjectOutcome.CREATED) is ObjectStep.REST
        assert list(rules.confirm()) == []


class TestJudge:
    def test_our_own_object(self) -> None:
        assert judge(content(), content()[-FOOTER_BYTES:], KEY) == (ObjectOutcome.OURS, "")

    @pytest.mark.parametrize(
        ("found", "outcome", "words"),
        [
            (
                lambda: encode_seal(Seal(1, 4, 9, NONCE, 2, "taken over")),
                ObjectOutcome.SEALED,
                "Node 2 sealed the session at",
            ),
            (
                lambda: content(nonce=bytes(15) + b"x"),
                ObjectOutcome.FOREIGN,
                "is an object of another writer",
            ),
            (lambda: content(seq=8), ObjectOutcome.FOREIGN, "is an object of another writer"),
            (
                lambda: b"SQWL",
                ObjectOutcome.FOREIGN,
                "The session's next object is not its own: .* is cut short",
            ),
            (
                lambda: content()[:-8] + b"\0\3\0\0SQWL",
                ObjectOutcome.FOREIGN,
                "A later release ended the session: .* has version 3",
            ),
        ],
    )
    def test_others(self, found: Callable[[], bytes], outcome: ObjectOutcome, words: str) -> None:
        judged, sentence = judge(found()[-END_BYTES:], content()[-FOOTER_BYTES:], KEY)
        assert judged is outcome
        assert KEY in sentence
        assert re.search(words, sentence)

    def test_our_own_seal(self) -> None:
        seal = encode_seal(Seal(1, 4, 9, NONCE, 1, "stop"))
        assert judge(seal, seal[-FOOTER_BYTES:], KEY)[0] is ObjectOutcome.OURS
