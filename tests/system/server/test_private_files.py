"""Every file that a gateway makes can be read by its owner only, whatever the umask is."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from tests.support.gateway_process import GatewayProcess
from tests.system.commands.conftest import seqgate

WIDE_OPEN = ("sh", "-c", 'umask 000; exec "$@"', "sh")


def modes(directory: Path) -> Iterator[tuple[Path, int]]:
    """Yield the directory and everything in it, with the bits of the mode."""
    for path in (directory, *directory.rglob("*")):
        yield path, stat.S_IMODE(path.lstat().st_mode)


def test_everything_in_the_data_directory_is_private(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with GatewayProcess(data, under=WIDE_OPEN) as gateway:
        cluster = ("--bootstrap", gateway.bootstrap)
        seqgate("topics", "create", "orders", "--partitions", "2", "--set", "segment.bytes=1048576", *cluster)
        seqgate(
            "produce", "orders", *cluster, stdin=b"".join(b"%0200000d\n" % number for number in range(20))
        )
        seqgate("groups", "reset", "g", "--topic", "orders", "--to-latest", "--execute", *cluster)
        running = dict(modes(data))
    stopped = dict(modes(data))
    assert len(running) > 20
    assert any(path.name == "control.sock" for path in running)
    for path, mode in (running | stopped).items():
        wanted = 0o700 if path.is_dir() else 0o600
        assert mode == wanted, f"{path} has mode {mode:04o}"
    assert "other users" not in gateway.stderr_text()


def test_a_directory_that_others_can_read_is_warned_of(tmp_path: Path) -> None:
    data = tmp_path / "the data"
    data.mkdir()
    data.chmod(0o755)
    with GatewayProcess(data) as gateway:
        assert gateway.pid
    assert f"chmod 700 '{data}'" in gateway.stderr_text()
    assert stat.S_IMODE(data.stat().st_mode) == 0o755
