"""`asks` makes commands: their options, their output, and how they end."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import pytest

from seqgate.gateway.admin.commands import (
    AsJson,
    Command,
    OptionsOf,
    Output,
    argument,
    asks,
    flag,
    option,
    stop,
)
from seqgate.gateway.admin.options import Consent, Opened, is_confirmed

events: list[str] = []


@contextmanager
def reach(place: Annotated[str, option("--place", "PLACE", "Whom to ask.")] = "here") -> Iterator[str]:
    """Yield the place, and write down that it was opened."""
    events.append(f"opened {place}")
    yield place


def made(
    low: int = option("--low", "N", "", default=0), high: int = option("--high", "N", "", default=9)
) -> range:
    """Return a value that is made of two options."""
    return range(low, high)


@asks(reach)
def command(
    opened: Opened[str],
    *,
    name: str = argument("NAME", "A name."),
    numbers: Annotated[range, OptionsOf(made)],
    refuses: bool = flag("--refuse", ""),
) -> Output:
    """Show a name."""
    if name == "wrong":
        raise stop("NAME is wrong", code=2)
    with opened as place:
        text = [f"{name} {place} {numbers.start}-{numbers.stop}"]
        return Output({"name": name}, text, refusals=["refused"] if refuses else ())


@asks(reach, first=True)
def printing(
    opened: Opened[str], *, name: str = option("--name", "NAME", "", default="x"), as_json: AsJson = False
) -> None:
    """Print by itself."""
    with opened as place:
        print(name, place, as_json)


def ended(run: Command, **given: Any) -> int:
    """Return the exit code of a command."""
    try:
        run(**given)
    except SystemExit as end:
        return int(str(end.code))
    return 0


GIVEN: dict[str, Any] = {
    "name": "n",
    "low": 1,
    "high": 2,
    "refuses": False,
    "place": "there",
    "as_json": False,
}


def test_options_come_in_the_order_of_the_help() -> None:
    assert [each.name for each in command.parameters] == [
        "name",
        "low",
        "high",
        "refuses",
        "place",
        "as_json",
    ]
    assert [each.name for each in printing.parameters] == ["place", "name", "as_json"]


def test_the_text_or_the_document_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(command, **GIVEN) == 0
    assert capsys.readouterr().out == "n there 1-2\n"
    assert ended(command, **GIVEN | {"as_json": True}) == 0
    assert capsys.readouterr().out == '{\n  "name": "n"\n}\n'


@pytest.mark.parametrize("as_json", [False, True])
def test_a_refusal_is_told_on_stderr(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(command, **GIVEN | {"refuses": True, "as_json": as_json}) == 1
    assert capsys.readouterr().err == "seqgate: refused\n"


def test_a_wrong_option_is_reported_before_anybody_is_asked() -> None:
    events.clear()
    assert ended(command, **GIVEN | {"name": "wrong"}) == 2
    assert events == []
    assert ended(command, **GIVEN) == 0
    assert events == ["opened there"]


def test_a_command_that_prints_by_itself_knows_how(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(printing, place="p", name="y", as_json=True) == 0
    assert capsys.readouterr().out == "y p True\n"


def agreed(answer: bool, capsys: pytest.CaptureFixture[str], **options: bool) -> tuple[Any, str]:
    """Return the outcome of a command that can't be undone, or how it ended, and what it printed."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("seqgate.gateway.admin.options.is_confirmed", lambda _: answer)
        try:
            outcome: Any = Consent(**options).plan_ask_and_do(
                lambda execute: "done" if execute else "planned", lambda plan: [plan], "Sure?"
            )
        except SystemExit as ended:
            outcome = ended.code
    return outcome, capsys.readouterr().out


def test_nobody_is_asked_off_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert not is_confirmed("Sure?")
    assert capsys.readouterr() == ("", "")


def test_what_can_not_be_undone_asks_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert agreed(True, capsys) == ("done", "planned\n")
    refused = "planned\nNothing is changed. --yes does it without asking.\n"
    assert agreed(False, capsys) == (1, refused)
    assert agreed(False, capsys, yes=True) == ("done", "")
    assert agreed(False, capsys, as_json=True) == ("planned", "")
    assert agreed(False, capsys, as_json=True, yes=True) == ("done", "")
    assert agreed(True, capsys, dry_run=True, yes=True) == ("planned", "")
