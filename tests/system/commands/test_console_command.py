"""`seqgate console`: its options, and where it must not listen."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.gateway_process import GatewayProcess
from tests.system.commands.conftest import seqgate


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--listen", "0.0.0.0:8080"), 1, "has no logins"),
        (("--listen", "nowhere"), 2, "--listen"),
        (("--metrics", "ftp://x"), 1, "must be a URL"),
        (("--bootstrap", "http://x:1"), 2, "--bootstrap"),
        (("--tls-key", __file__), 2, "together"),
        (("--tls-key", __file__, "--tls-certificate", __file__), 1, "can't be used"),
    ],
)
def test_wrong_options_end_with_a_sentence(
    shared_gateway: GatewayProcess, options: tuple[str, ...], code: int, words: str
) -> None:
    given = options if "--bootstrap" in options else ("--bootstrap", shared_gateway.bootstrap, *options)
    assert words in seqgate("console", *given, code=code).stderr


def test_the_port_of_another_server_is_refused(shared_gateway: GatewayProcess) -> None:
    address = shared_gateway.bootstrap
    ended = seqgate("console", "--bootstrap", address, "--listen", address, code=1)
    assert "choose another address" in ended.stderr


def test_without_its_packages_the_console_names_them() -> None:
    script = (
        "import sys; sys.modules['starlette'] = None\n"
        "from seqgate.gateway.cli import app\n"
        "app(['console', '--listen', '127.0.0.1:0'], prog_name='seqgate')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'seqgate[console]'" in done.stderr


def test_other_commands_load_nothing_of_the_console() -> None:
    script = (
        "import sys; import seqgate.gateway.cli\n"
        "print([name for name in ('starlette', 'uvicorn', 'jinja2', 'kafka') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
