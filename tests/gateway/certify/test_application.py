"""How an application is run: its words, its input and output, and its end with all that it has started."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path

import pytest

from seqgate.gateway.certify.application import Application, NotStarted
from seqgate.gateway.certify.command import words_of

LIMIT_S = 120.0


def python(source: str, timeout_s: float = LIMIT_S) -> Application:
    return Application([sys.executable, "-c", source], {"SEQGATE_TOPIC": "orders"}, timeout_s)


def test_placeholders_stand_within_words() -> None:
    command = "send --to={bootstrap} '{topic} of $HOME' {records} {other}"
    assert words_of(command, {"bootstrap": "h:1", "topic": "a b", "records": "7"}) == [
        "send",
        "--to=h:1",
        "a b of $HOME",
        "7",
        "{other}",
    ]


@pytest.mark.parametrize(
    ("command", "sentence"), [("", "the command is empty"), ("a 'b", "No closing quotation")]
)
def test_a_command_that_is_none(command: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        words_of(command, {})


def test_lines_that_are_values_are_acknowledged() -> None:
    source = "import sys; print('starting'); [print(line, end='') for line in sys.stdin]; print('b\\rx')"
    with python(source).start([b"a", b"b", b"c"]) as application:
        assert application.write([b"a", b"c"])
        ending = application.finish()
    assert (ending.exit_code, ending.acknowledged) == (0, {b"a", b"c"})


def test_the_environment_and_the_end_of_stderr_are_there() -> None:
    source = "import os, sys; sys.stderr.write('x' * 9000); sys.exit(os.environ['SEQGATE_TOPIC'] + ' failed')"
    with python(source).start([]) as application:
        ending = application.finish()
    assert ending.exit_code == 1
    assert len(ending.errors) < 3_000
    assert ending.errors.endswith("xx" + "orders failed")


def test_an_application_that_reads_nothing_takes_no_more_values() -> None:
    with python("import os; os.close(0)").start([]) as application:
        application.has_ended.wait(LIMIT_S)
        assert not application.write([b"a"])
        assert application.finish().exit_code == 0


@pytest.mark.tier("all")
def test_one_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    child = (
        f"import os, time; open({str(tmp_path / 'child')!r}, 'w').write(str(os.getpid())); time.sleep(999)"
    )
    source = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with python(source, timeout_s=15.0).start([]) as application:
        ending = application.finish()
    assert ending.exit_code is None
    assert ending.seconds >= 15
    deadline_s = time.monotonic() + LIMIT_S
    while _is_running(int((tmp_path / "child").read_text())):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_a_program_that_does_not_exist_leaves_nothing_open() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(NotStarted, match=r"can't be started: .*no such program"):
        Application(words_of(shlex.quote("/no such program"), {}), {}, 1.0).start([])
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def _is_running(pid: int) -> bool:
    """Return whether a process runs; a zombie that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
