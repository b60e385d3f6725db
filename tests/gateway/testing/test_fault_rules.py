"""Which requests faults strike: the rule, a naive model of it, and many threads at once."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqgate.gateway.gateway import Gateway
from seqgate.gateway.testing.faults import Choice, Effect, Fault, Faults, Kind, RequestFacts, error_code
from seqgate.gateway.testing.inside import FillableStorage, Inside
from tests.models.faults import ModelFault, ModelRequest, struck_by


def run(work: Callable[[], Awaitable[object]], *, is_optional: bool = False) -> object:
    raise AssertionError((work, is_optional))


def no_gateway() -> Gateway:
    raise AssertionError


def new_faults() -> Faults:
    return Faults(Inside(no_gateway, FillableStorage()), run)


APIS = ("Produce", "Fetch", "Metadata")
NAMES = ("a", "b")
ORDERS = st.tuples(
    st.sampled_from((None, *APIS)),
    st.sampled_from((None, *NAMES)),
    st.sampled_from((None, *NAMES)),
    st.integers(0, 3),
    st.integers(1, 3),
)
REQUESTS = st.builds(
    ModelRequest, st.sampled_from(APIS), st.sampled_from(NAMES), st.frozensets(st.sampled_from(NAMES))
)


@settings(max_examples=300)
@given(st.lists(st.one_of(ORDERS, REQUESTS, st.integers(0, 5)), max_size=40))
def test_faults_strike_as_the_model_says(steps: list[object]) -> None:
    faults, ordered, model = new_faults(), list[Fault](), list[ModelFault]()
    for number, step in enumerate(steps):
        if isinstance(step, tuple):
            api, topic, client, after, times = step
            ordered.append(faults.close(api=api, topic=topic, client=client, after=after, times=times))
            model.append(ModelFault(api, topic, client, after, times))
        elif isinstance(step, ModelRequest):
            facts = RequestFacts(step.api, step.client, step.topics)
            found = faults.strike(facts)
            index = struck_by(model, step, number)
            assert (found and ordered.index(found[0])) == index
            if index is not None:
                assert faults.may_strike(step.api, step.client)
        elif isinstance(step, int) and step < len(ordered):
            ordered[step].end()
            model[step].is_over = True
    assert [fault.struck for fault in ordered] == [len(each.struck) for each in model]
    assert [fault.seen for fault in ordered] == [each.seen for each in model]


def test_faults_that_threads_order_while_requests_come_are_never_lost() -> None:
    faults, each, threads = new_faults(), 300, 4
    request = RequestFacts("Produce", "c", ())
    struck = 0
    begin = threading.Barrier(threads + 1)

    def order() -> None:
        begin.wait()
        for _ in range(each):
            faults.error("NOT_ENOUGH_REPLICAS", api="Produce")

    ordering = [threading.Thread(target=order) for _ in range(threads)]
    for thread in ordering:
        thread.start()
    begin.wait()
    while any(thread.is_alive() for thread in ordering):
        struck += faults.strike(request) is not None
    for thread in ordering:
        thread.join()
    while faults.strike(request) is not None:
        struck += 1
    assert struck == each * threads


def test_a_watched_request_is_struck_by_the_next_fault_too() -> None:
    faults = new_faults()
    watch, close = faults.watch(api="Fetch"), faults.close(api="Fetch")
    assert faults.strike(RequestFacts("Fetch", "c", ())) == (close, Effect(Kind.CLOSE))
    assert faults.strike(RequestFacts("Fetch", "c", ())) is None
    assert (watch.struck, close.struck) == (2, 1)


def test_a_reset_ends_all_faults_and_a_block_ends_its_own() -> None:
    faults = new_faults()
    with faults.close(api="Produce", times=9) as inner:
        outer = faults.drop_answer(api="Fetch")
        assert list(faults) == [inner, outer]
    assert list(faults) == [outer]
    faults.reset()
    assert list(faults) == []
    assert outer.has_ended
    assert not faults.may_strike("Fetch", "c")


def test_a_waiting_test_wakes_with_the_strike_and_gives_up_with_a_sentence() -> None:
    faults = new_faults()
    fault = faults.drop_answer(api="Produce", times=2)
    waiting = threading.Thread(target=fault.wait_until_struck, args=(2,))
    waiting.start()
    for _ in range(2):
        faults.strike(RequestFacts("Produce", "c", ()))
    waiting.join()
    with pytest.raises(
        TimeoutError, match=r"drop answer \(api Produce\) has struck 2 times in 0\.01 s, not 3"
    ):
        fault.wait_until_struck(3, 0.01)


@pytest.mark.parametrize(
    ("order", "sentence"),
    [
        (lambda faults: faults.close(times=0), "times must be at least 1, not 0"),
        (lambda faults: faults.close(after=-1), "after must be at least 0, not -1"),
        (lambda faults: faults.delay(-1), "milliseconds must be at least 0, not -1"),
        (lambda faults: faults.close(api="produce"), "write Produce"),
        (lambda faults: faults.close(api="Publish"), "'Publish' is not the name of an API"),
        (lambda faults: faults.error("NO_SUCH_ERROR"), "'NO_SUCH_ERROR' is not the name of an error"),
        (lambda faults: faults.error("duplicate_sequence"), "the nearest name is DUPLICATE_SEQUENCE_NUMBER"),
        (lambda faults: faults.error("none"), "NONE refuses no request"),
        (lambda faults: faults.script(1, rate=0), "rate must be above 0 and at most 1, not 0"),
        (lambda faults: faults.script(1, kinds=[]), "kinds must name at least one"),
        (lambda faults: faults.script(1, kinds=[Kind.CORRUPT]), "a script has no fault of the kind corrupt"),
        (
            lambda faults: faults.script(1, api="Fetch", kinds=[Kind.ERROR]),
            "a script for Fetch has no fault of the kind error",
        ),
    ],
)
def test_a_wrong_order_is_refused_with_a_sentence(order: Callable[[Faults], Fault], sentence: str) -> None:
    faults = new_faults()
    with pytest.raises(ValueError, match=sentence):
        order(faults)
    assert list(faults) == []


def test_names_and_texts() -> None:
    assert error_code("not_enough_replicas") is error_code("NOT_ENOUGH_REPLICAS")
    assert str(Choice()) == "every request"
    fault = new_faults().error("NOT_COORDINATOR", api="Heartbeat", client="c")
    assert str(fault) == "error NOT_COORDINATOR (api Heartbeat, client c)"
    assert str(new_faults().script(7, topic="t")) == "script of seed 7, rate 0.1 (topic t)"
