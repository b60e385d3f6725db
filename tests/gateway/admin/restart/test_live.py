"""What one process leaves to the next, and when a restart begins."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from seqgate.gateway.admin.client import ask
from seqgate.gateway.admin.request import ControlError, NotRunning
from seqgate.gateway.admin.restart import command
from seqgate.gateway.admin.restart.command import OrderedRestart, RestartedRequest, RestartRequest
from seqgate.gateway.admin.restart.live import (
    VARIABLE,
    Passed,
    Restarts,
    address_of,
    command_line,
    control_address,
    listeners_of,
)
from seqgate.gateway.admin.server import ControlServer
from seqgate.gateway.config import load_config
from seqgate.gateway.config.workers import worker_config
from tests.gateway.admin.answers import answer
from tests.gateway.handlers.support import open_node


def environment(passed: Passed) -> dict[str, str]:
    return {VARIABLE: msgspec.json.encode(passed).decode(), "HOME": "/"}


def test_only_the_process_that_takes_the_place_takes_what_was_left() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        os.set_inheritable(listening.fileno(), True)
        address = listening.getsockname()
        left = Passed(pid=os.getpid(), restart="r", sockets={"a": [os.dup(listening.fileno())], "b": []})
        variables = environment(left)
        taken = Passed.from_environment(variables)
        assert taken == left
        assert variables == {"HOME": "/"}
    (inherited,) = taken.take("a")
    with inherited:
        assert not inherited.get_inheritable()
        assert inherited.getsockname() == address
    assert taken.take("a") == taken.take("c") == []
    assert Passed.from_environment(environment(Passed(pid=1, restart="r"))) == Passed()
    check = Passed(is_check=True, sockets={"a": []})
    assert Passed.from_environment(environment(check)) == check


def test_sockets_on_addresses_that_the_settings_do_not_name_any_more_are_closed() -> None:
    ours, other = socket.socketpair()
    passed = Passed(sockets={"a": [ours.detach()], "b": []})
    passed.keep_sockets(["a", "c"])
    assert list(passed.sockets) == ["a"]
    passed.keep_sockets()
    assert other.recv(1) == b""
    other.close()


def test_workers_on_ports_that_the_system_chooses_have_sockets_of_their_own() -> None:
    config = load_config(
        None, {}, ["listeners=PLAINTEXT://127.0.0.1:0,SSL://:9000", "seqgate.metrics.listener=[::1]:9100"]
    )
    of_first, of_second = (
        [address_of(listener, number) for listener in listeners_of(worker_config(config, number))]
        for number in (1, 2)
    )
    assert of_first == ["PLAINTEXT://127.0.0.1:0#1", ":9000", "::1:9100"]
    assert of_second == ["PLAINTEXT://127.0.0.1:0#2", ":9001", "::1:9101"]


def test_listeners_of_one_host_on_ports_that_the_system_chooses_have_sockets_of_their_own() -> None:
    zero = "127.0.0.1:0"
    config = load_config(
        None, {}, [f"listeners=PLAINTEXT://{zero},SSL://{zero}", f"seqgate.metrics.listener={zero}"]
    )
    assert len({address_of(listener, 1) for listener in listeners_of(worker_config(config, 1))}) == 3


def test_the_control_socket_stays_only_where_the_data_directory_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ours, other = socket.socketpair()
    left = ours.detach()
    restarts = Restarts(
        Passed(sockets={control_address(tmp_path / "data" / "control.sock"): [left]}),
        [],
        lambda _: None,
        data_dir="",
    )
    with other:
        assert restarts.take(tmp_path / "other" / "control.sock") == []
        (taken,) = restarts.take(Path("data/control.sock"))
        assert taken.fileno() == left
        taken.close()


def test_a_script_is_executed_itself_and_a_module_by_its_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "seqgate"
    script.write_text("#!/opt/new/bin/python\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(script), "serve"])
    monkeypatch.setattr(sys, "orig_argv", ["/opt/old/bin/python", str(script), "serve"])
    assert command_line() == [str(script), "serve"]
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "seqgate", "serve"])
    assert command_line() == [sys.executable, "-m", "seqgate", "serve"]


async def test_a_restart_begins_once_the_command_has_its_answer_and_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refusal(to_check: Passed) -> str | None:
        assert to_check == Passed(is_check=True, sockets={"127.0.0.1:9092": []}, data_dir="/data")
        return refusals.pop() if refusals else None

    monkeypatch.setattr(command, "_refusal_of_next", refusal)
    refusals = ["it can't start"]
    begun: asyncio.Queue[str] = asyncio.Queue()
    async with open_node(tmp_path / "data") as node:
        restarts = Restarts(
            Passed(restart="before"), ["127.0.0.1:9092"], begun.put_nowait, data_dir="/data", pid=7
        )
        control = ControlServer(node.services, tmp_path, restarts=restarts)
        await control.start()
        with pytest.raises(ControlError, match="it can't start"):
            await asyncio.to_thread(ask, tmp_path, RestartRequest("first"))
        assert begun.empty()
        assert await asyncio.to_thread(ask, tmp_path, RestartRequest("second")) == OrderedRestart(7)
        assert await begun.get() == "second"
        with pytest.raises(ControlError, match="a restart has begun already"):
            await asyncio.to_thread(ask, tmp_path, RestartRequest("third"))
        (told,) = (await asyncio.to_thread(ask, tmp_path, RestartedRequest())).gateways
        assert told.restart == "before"
        assert begun.empty()
        await control.stop()


async def test_commands_wait_at_the_socket_that_one_process_leaves_to_the_next(tmp_path: Path) -> None:
    async with open_node(tmp_path / "data") as node:
        first = ControlServer(node.services, tmp_path)
        await first.start()
        (kept,) = first.duplicates()
        await first.stop()
        waiting = asyncio.create_task(asyncio.to_thread(ask, tmp_path, RestartedRequest()))
        second = ControlServer(node.services, tmp_path)
        await second.start([socket.socket(fileno=kept)])
        assert (await waiting).gateways == []
        await second.stop()
        with pytest.raises(NotRunning):
            await asyncio.to_thread(ask, tmp_path, RestartedRequest())


async def test_a_gateway_inside_of_another_program_does_not_restart(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        with pytest.raises(ControlError, match="this gateway runs inside of another program"):
            await answer(node, RestartRequest("r"))


def test_the_command_sees_that_a_process_has_ended() -> None:
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child,
        command._watched(child.pid) as has_ended,
    ):
        assert not has_ended()
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert has_ended()
