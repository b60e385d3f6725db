"""The queue of loads: the least load comes first, and equal loads in the order of Kafka's heap."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.coordinator.streams.task_assignor import LeastLoaded


@given(loads=st.lists(st.integers(0, 9)))
def test_items_come_by_load(loads: list[int]) -> None:
    queue = LeastLoaded((load, load) for load in loads)
    assert len(queue) == len(loads)
    assert [queue.take() for _ in loads] == sorted(loads)
    assert not queue


def test_equal_loads_come_in_the_order_of_the_heap() -> None:
    """The last item fills the place of the first, and goes before the items of its load between them."""
    queue = LeastLoaded((0, name) for name in "abcd")
    assert [queue.take() for _ in "abcd"] == ["a", "d", "c", "b"]


def test_an_item_goes_behind_those_with_less_load() -> None:
    queue = LeastLoaded([(0, "a"), (0.5, "b"), (2, "c")])
    queue.put(1, queue.take())
    assert [queue.take() for _ in "abc"] == ["b", "a", "c"]
