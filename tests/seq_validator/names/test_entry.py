"""The persisted and pushed sequence ids of a name, for any order of pushes and high watermarks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from seqgate.seq_validator.entry import NO_OFFSET
from seqgate.seq_validator.names.entry import NO_SEQUENCE_ID, NameEntry

steps = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(0, 60), st.integers(1, 4)),
        st.tuples(st.just("persist"), st.integers(0, 12), st.just(0)),
    ),
    max_size=40,
)


@given(steps)
def test_the_persisted_sequence_is_never_ahead_and_catches_up(listed: list[tuple[str, int, int]]) -> None:
    entry = NameEntry(b"app", 0)
    pushed: list[tuple[int, int]] = []
    log_end_offset = high_watermark = 0
    persisted = NO_SEQUENCE_ID
    for kind, number, further in listed:
        if kind == "push":
            offset = log_end_offset + further - 1
            entry.push(number, offset, high_watermark)
            if not pushed or number > pushed[-1][0]:
                pushed.append((number, offset))
            log_end_offset = offset + 1
        else:
            high_watermark = min(log_end_offset, high_watermark + number)
        truly = max((one for one, offset in pushed if offset < high_watermark), default=NO_SEQUENCE_ID)
        told = entry.persisted_sequence(high_watermark)
        assert persisted <= told <= truly
        persisted = told
        assert entry.sequence_id == (pushed[-1][0] if pushed else NO_SEQUENCE_ID)
        for sequence_id, offset in pushed:
            waits_for = entry.offset_to_wait_for(sequence_id, high_watermark)
            assert (waits_for == NO_OFFSET and sequence_id <= truly) or offset <= waits_for < log_end_offset
    assert entry.persisted_sequence(log_end_offset) == entry.sequence_id


def test_a_restored_sequence_id_is_persisted() -> None:
    entry = NameEntry(b"app", 5)
    entry.restore(7, 3, 2)
    state = entry.state(0)
    assert (state.persisted_sequence, state.pushed_sequence, state.epoch, state.is_pending) == (
        7,
        7,
        2,
        False,
    )
    entry.push(9, 10, 4)
    assert entry.persisted_sequence(4) == 7
    assert entry.offset_to_wait_for(8, 4) == 10
