"""`seqgate certify` as a command: its output, its reports, its exit codes, and its end by Ctrl-C."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import Result
from typer.testing import CliRunner

from seqgate.gateway.certify.scripts import SCRIPTS
from seqgate.gateway.cli import app

LIMIT_S = 120.0
PROGRAM = Path(__file__).with_name("producer.py")


def certify(*options: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(app, ["certify", *options])


def words(*options: str) -> list[str]:
    """Return the words that run the command in a process of its own."""
    return [sys.executable, "-m", "seqgate", "certify", *options]


def command(mode: str) -> str:
    return shlex.join([sys.executable, str(PROGRAM), mode])


def test_a_good_producer_and_its_reports(tmp_path: Path) -> None:
    reports = [tmp_path / "report.json", tmp_path / "report.xml"]
    options = [f"--report={path}" for path in reports]
    options += ["--command", command("right"), "--scripts", "power-cut, first-answer-lost"]
    done = subprocess.run(
        words(*options), capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=PROGRAM.parent
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    first, *lines, last = done.stdout.splitlines()
    assert first.startswith("without a fault: 200 records in ")
    assert {line.split()[1] for line in lines} == {"power-cut", "first-answer-lost"}
    assert last == "2 scripts: 2 passed."
    report = json.loads(reports[0].read_text())
    assert report["certified"] is True
    assert [row["stored"] for row in report["scripts"]] == [200, 200]
    assert ET.parse(reports[1]).getroot().attrib["tests"] == "2"


def test_a_bad_producer_ends_with_1_and_json() -> None:
    done = certify("--command", command("unidempotent"), "--scripts", "first-answer-lost", "--json")
    assert done.exit_code == 1, done.output
    report = json.loads(done.stdout)
    assert report["certified"] is False
    assert report["scripts"][0]["doubled"]


def test_giving_up_can_be_allowed() -> None:
    options = ("--command", command("impatient"), "--scripts", "replicas-missing", "--allow-giving-up")
    done = certify(*options)
    assert done.exit_code == 0, done.output
    assert "1 script: 1 gave up." in done.stdout


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        ((), 2, "--command is missing"),
        (("--command", "a 'b"), 2, "can't be split into words: No closing quotation"),
        (("--command", "x", "--topic", "a b"), 2, "topic 'a b' can't be created: "),
        (("--command", "x", "--scripts", "x"), 2, "--scripts: 'x' is not the name of a script"),
        (("--command", "x", "--report", "/no/such/file"), 2, "--report: there is no directory /no/such"),
        (("--command", "/no/such/program"), 1, "the command can't be started: "),
        (
            ("--command", "false"),
            1,
            "the application fails without a fault: it gave up with exit code 1; 0 of",
        ),
    ],
)
def test_what_goes_wrong_is_one_sentence(options: tuple[str, ...], code: int, sentence: str) -> None:
    done = certify(*options)
    assert done.exit_code == code
    assert sentence in done.stderr
    assert isinstance(done.exception, SystemExit)


def test_the_list_names_every_script() -> None:
    done = certify("--list")
    assert done.exit_code == 0
    assert all(script.name in done.stdout for script in SCRIPTS)


def test_ctrl_c_kills_the_application(tmp_path: Path) -> None:
    started = tmp_path / "started"
    waiting = f"{command('waiting')} {started}"
    running = subprocess.Popen(
        words("--command", waiting, "--jobs", "1"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline_s = time.monotonic() + LIMIT_S
    while not (started.is_file() and started.read_text()):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    stdout, _ = running.communicate(timeout=LIMIT_S)
    assert running.returncode == 130
    assert len(stdout.splitlines()) == 1, "only the run without a fault has ended"
    assert not Path(f"/proc/{started.read_text()}").exists()
