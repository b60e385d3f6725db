from __future__ import annotations

from seqgate.log.state.leader_epochs import LeaderEpochs


def test_end_offsets() -> None:
    epochs = LeaderEpochs([(1, 10), (3, 20), (6, 50)])
    asked = {epoch: epochs.end_offset(epoch, 70) for epoch in (-1, 0, 1, 2, 3, 4, 6, 7)}
    assert asked == {
        -1: (-1, -1),
        0: (0, 10),
        1: (1, 20),
        2: (1, 20),
        3: (3, 50),
        4: (3, 50),
        6: (6, 70),
        7: (-1, -1),
    }


def test_empty() -> None:
    assert LeaderEpochs().latest == -1
    assert LeaderEpochs().end_offset(0, 5) == (-1, -1)


def test_at() -> None:
    epochs = LeaderEpochs([(1, 10), (3, 20)])
    assert [epochs.at(offset) for offset in (9, 10, 19, 20, 99)] == [-1, 1, 1, 3, 3]


def test_assign_takes_only_newer_ones() -> None:
    epochs = LeaderEpochs()
    assert epochs.assign(2, 5)
    assert not epochs.assign(2, 9)
    assert not epochs.assign(1, 9)
    assert epochs.assign(3, 5)
    assert epochs.entries() == [(3, 5)]


def test_truncate() -> None:
    epochs = LeaderEpochs([(1, 10), (3, 20), (6, 50)])
    epochs.truncate(50)
    assert epochs.entries() == [(1, 10), (3, 20)]


def test_truncate_start() -> None:
    epochs = LeaderEpochs([(1, 10), (3, 20), (6, 50)])
    epochs.truncate_start(5)
    assert epochs.entries() == [(1, 10), (3, 20), (6, 50)]
    epochs.truncate_start(30)
    assert epochs.entries() == [(3, 30), (6, 50)]
    epochs.truncate_start(50)
    assert epochs.entries() == [(6, 50)]
