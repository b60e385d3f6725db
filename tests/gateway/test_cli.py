"""A right command line is taken without typer, and as typer takes it; typer looks at all others."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import typer
from typer.testing import CliRunner

from seqgate.gateway.admin.commands import REQUIRED, Command, Commands, Parameter, option_of
from seqgate.gateway.cli import COMMANDS, app, found, main, parse

WHOLE = typer.main.get_command(app)


def by_typer(words: list[str]) -> dict[str, Any]:
    command: Any = WHOLE
    parent = None
    while isinstance(command, typer.core.TyperGroup):
        word, *words = words
        parent = command.context_class(command, info_name=word, parent=parent)
        command = command.commands[word]
    given: dict[str, Any] = command.make_context("command", list(words), parent=parent).params
    # typer gives the function None for a list without a value
    return {name: None if value == () else value for name, value in given.items()}


def commands() -> Iterator[tuple[list[str], Command]]:
    for name in COMMANDS:
        chosen = found(name)
        if isinstance(chosen, Commands):
            yield from (([name, word], command) for word, command in chosen.commands.items())
        else:
            yield [name], chosen


def value_of(parameter: Parameter, file: str) -> str:
    """Return a right value of a parameter."""
    text = str(parameter.type)
    if "Literal" in text:
        kinds = [each for each in (parameter.type, *get_args(parameter.type)) if get_origin(each) is Literal]
        return str(get_args(kinds[0])[0])
    if "End" in text:
        return "kill"
    if "Path" in text:
        facts = option_of(parameter).facts
        return str(Path(file).parent) if not facts.get("file_okay", True) else file
    return "27" if "int" in text or "float" in text else "word"


@pytest.mark.parametrize("every", [False, True], ids=["least", "all"])
@pytest.mark.parametrize(
    ("words", "command"), [pytest.param(*each, id=" ".join(each[0])) for each in commands()]
)
def test_each_command_is_taken_as_typer_takes_it(
    words: list[str], command: Command, every: bool, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    given = list(words)
    for each in command.parameters:
        names = option_of(each).names
        is_flag = each.type in {bool, bool | None}
        if names is None and (every or each.default is REQUIRED):
            given.append(value_of(each, str(file)))
        elif names is not None and (every or each.default is REQUIRED) and "/" not in names[0]:
            given += [names[0]] if is_flag else [names[0], value_of(each, str(file))]
    right = parse(given)
    assert right is not None
    assert right[0] is command
    assert right[1] == by_typer(given)


@pytest.mark.parametrize(("encoding", "given"), [("latin-1", b"?"), ("utf-8", "→".encode())])
def test_no_letter_ends_a_command(monkeypatch: pytest.MonkeyPatch, encoding: str, given: bytes) -> None:
    written = io.BytesIO()
    with monkeypatch.context() as patched:
        patched.setattr("sys.argv", ["seqgate", "tasks"])
        patched.setattr("sys.stdout", io.TextIOWrapper(written, encoding))
        patched.setattr("seqgate.gateway.cli._run", lambda *_: print("→", flush=True))
        main()
        assert written.getvalue() == given + b"\n"


@pytest.mark.parametrize("words", ["--version", "help", "topics --help"])
def test_an_output_that_can_not_be_written_ends_a_command(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["seqgate", *words.split()])
    with Path("/dev/full").open("w") as full, monkeypatch.context() as patched:
        patched.setattr("sys.stdout", full)
        with pytest.raises(SystemExit, match="1"):
            main()
    assert capsys.readouterr().err == "seqgate: the output can't be written: No space left on device\n"


def test_a_command_runs_without_standard_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []

    def run(*_: object) -> None:
        assert not sys.stdin.isatty()
        sys.stdout.buffer.write(sys.stdin.buffer.read())
        ran.append(sys.stderr.write("x"))

    monkeypatch.setattr("sys.argv", ["seqgate", "tasks"])
    monkeypatch.setattr("seqgate.gateway.cli._run", run)
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(f"sys.{name}", None)
    main()
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        stream.close()
    assert ran == [1]


def test_each_command_that_asks_somebody_has_a_timeout() -> None:
    asked = {"--bootstrap", "--cluster", "--data-dir", "--redis"}
    without = []
    for words, command in commands():
        names = {name for each in command.parameters for name in option_of(each).names or ()}
        if names & asked and "--timeout" not in names:
            without.append(" ".join(words))
    assert without == ["serve", "console", "repair"], "these serve, or read a directory that nobody serves"


@pytest.mark.parametrize(
    "words",
    [
        "serve --listen=127.0.0.1:0 --listen INSIDE://[::1]:9093",
        "serve --data-dir a --data-dir=b --guide",
        "serve --set node.id=3 --set=log.dirs=x=y --set a=",
        "serve --set nonsense --listen nonsense",
        "topics create a b --set x=y c --partitions 3",
        "configs get topic orders",
        "configs get topic orders retention.ms cleanup.policy --all",
        "groups reset billing --topic orders:0,3 --to-offset 3",
        "consume orders -f --show offset,value",
        "certify --timeout 1.5",
    ],
)
def test_other_right_words(words: str) -> None:
    right = parse(words.split())
    assert right is not None
    assert right[1] == by_typer(words.split())


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--help"],
        ["topik"],
        ["topics"],
        ["topics", "-h"],
        ["topics", "lst"],
        ["topics", "create"],
        ["topics", "list", "more"],
        ["serve", "-h"],
        ["serve", "--listen"],
        ["serve", "--listen", "--guide"],
        ["serve", "--listen", ""],
        ["serve", "--data-dir="],
        ["serve", "--guide=yes"],
        ["serve", "--gui"],
        ["serve", "--unknown", "x"],
        ["serve", "data"],
        ["serve", "--"],
        ["serve", "--config", "no/such/file"],
        ["serve", "--config", "/"],
        ["serve", "--exit-with", "me"],
        ["serve", "--exit-with", "0"],
        ["configs", "get", "user", "ann"],
        ["groups", "reset", "billing", "--shift-by", "-3"],
        ["pids", "list", "--last", "1.5"],
        ["logs", "-n=5"],
        ["certify", "--timeout", "5e1"],
        ["faults", "restart", "--control", "h:1", "--after", "burn"],
    ],
    ids=" ".join,
)
def test_typer_looks_at_all_others(words: list[str]) -> None:
    assert parse(words) is None


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("produce t --key \udce4", "is not UTF-8"),
        ("topics create t --set a=1 --set b=\udce4", "is not UTF-8"),
        (f"consume t --limit {2**63}", "is too large"),
        (f"topics list --timeout {2**63}", "less than or equal to"),
        (f"topics create t --partitions {2**31}", "less than or equal to"),
        (f"cluster undrain {2**31}", "less than or equal to"),
    ],
)
def test_a_value_that_no_request_carries_is_refused(words: str, why: str) -> None:
    for_typer = CliRunner().invoke(app, words.split())
    assert (for_typer.exit_code, why in for_typer.output) == (2, True), for_typer.output
    right = parse(words.split())
    if right is not None:
        with pytest.raises(SystemExit, match="2"):
            right[0](**right[1])
