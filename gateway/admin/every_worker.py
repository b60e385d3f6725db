"""Asks several workers of one gateway: waits for one that is being started again, and says which gave no
answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import msgspec

from seqgate.gateway.admin.request import ControlError, Elsewhere, NoAnswer, NotRunning
from seqgate.gateway.cluster.cache.worker_caches import CACHES

RESTART_S: Final = 5.0
"""How long a command waits for workers that are being started again; then it says that they don't run."""
_PAUSE_S: Final = 0.05

B = TypeVar("B")
AskAt = Callable[[Path], B]


class Workers:
    """The workers of one gateway, as a command asks them: all have to answer in turn, and all pauses together
    are limited.
    """

    def __init__(
        self,
        places: Sequence[Path],
        is_there: Callable[[Path], bool],
        patience_s: float = RESTART_S,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Take the directories of the control sockets; `is_there` tells whether somebody listens at one."""
        self._places = places
        self._is_there = is_there
        self._now_s = now_s
        self._sleep = sleep
        self._until_s = now_s() + patience_s

    def first(self, ask_at: AskAt[B]) -> B:
        """Return the answer of the first worker that gives one. A worker may refuse what another one knows.

        Raises NoAnswer as soon as a worker takes the request and does not answer, because it may have done
        what it was asked. Without an answer, raises the refusal of the one that knows.
        """
        failed: dict[Path, ControlError] = {}
        for place in self._places:
            try:
                return self._patiently(place, ask_at)
            except NoAnswer as error:
                raise NoAnswer(f"{_name(place)} gave no answer: {error}") from error
            except ControlError as error:
                failed[place] = error
        raise self._error(failed)

    def all(self, ask_at: AskAt[B]) -> tuple[list[B], list[str]]:
        """Return the answers, at least one, and a sentence about each worker without one that had to give
        one. Raises as `first` does.
        """
        answers, failed = [], {}
        for place in self._places:
            try:
                answers.append(self._patiently(place, ask_at))
            except ControlError as error:
                failed[place] = error
        if not answers:
            raise self._error(failed)
        missing = [(place, error) for place, error in failed.items() if not isinstance(error, Elsewhere)]
        return answers, [f"{_name(place)} gave no answer: {_why(error)}" for place, error in missing]

    def _patiently(self, place: Path, ask_at: AskAt[B]) -> B:
        """Ask a worker. While others run and it does not, it is being started again."""
        while True:
            try:
                return ask_at(place)
            except NotRunning:
                others = (other for other in self._places if other != place)
                if self._now_s() >= self._until_s or not any(map(self._is_there, others)):
                    raise
                self._sleep(_PAUSE_S)

    @staticmethod
    def _error(failed: dict[Path, ControlError]) -> ControlError:
        """Return the error that says most: NotRunning if no worker runs, otherwise a refusal and who gave no
        answer.
        """
        errors = list(failed.values())
        if all(isinstance(error, NotRunning) for error in errors):
            return errors[0]
        absent = {place: error for place, error in failed.items() if isinstance(error, NotRunning | NoAnswer)}
        refusals = [error for error in errors if not isinstance(error, NotRunning | NoAnswer | Elsewhere)]
        if absent:
            told = [f"{_name(place)} gave no answer: {_why(error)}" for place, error in absent.items()]
            return NoAnswer("; ".join([*map(str, refusals[:1]), *told]))
        return refusals[0] if refusals else errors[0]


def _name(place: Path) -> str:
    return f"worker {place.name}" if place.parent.name == CACHES else f"the worker on node {place.name}"


def _why(error: ControlError) -> str:
    return "it is not running now" if isinstance(error, NotRunning) else str(error)


# Joins the answers of several workers, each of which knows a part.

_SUMMED: Final = ("counters", "waiting_requests", "waiting_bytes")
_UNITED: Final = ("offline_partitions",)
A = TypeVar("A")


def joined(found: Sequence[list[A]]) -> list[A]:
    """Return the pages of all workers as those of one gateway: the last page has the facts that are about no
    row, of all workers.
    """
    pages = [page for of_worker in found for page in of_worker]
    last = [of_worker[-1] for of_worker in found]
    facts: dict[str, Any] = {}
    for name in _SUMMED:
        if hasattr(last[0], name):
            facts[name] = summed([getattr(page, name) for page in last])
    for name in _UNITED:
        if hasattr(last[0], name):
            facts[name] = sorted({value for page in last for value in getattr(page, name)})
    if facts:
        pages[-1] = cast("A", msgspec.structs.replace(cast("Any", pages[-1]), **facts))
    return pages


def summed(values: Sequence[Any]) -> Any:
    """Return the sum of numbers, or of records of numbers, field by field; None if one is missing."""
    if any(value is None for value in values):
        return None
    if isinstance(values[0], int | float):
        return sum(values)
    names = [field.name for field in msgspec.structs.fields(values[0])]
    return msgspec.structs.replace(
        values[0], **{name: summed([getattr(value, name) for value in values]) for name in names}
    )
