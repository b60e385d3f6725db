"""A real PostgreSQL server for one test session."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from tests.support.gateway_process import free_port
from tests.support.setup_peers import postgresql_program

START_TIMEOUT_S = 60.0
UNPRIVILEGED = "nobody"


class PostgresqlServer:
    """The server as a context manager, which removes all its files.

    PostgreSQL refuses to run as root, so root starts it as nobody.
    """

    def __init__(self) -> None:
        program = postgresql_program("postgres")
        if program is None:
            raise RuntimeError(
                "PostgreSQL is not installed; these tests need it (Debian: apt-get install postgresql)"
            )
        self._programs = Path(program).resolve().parent
        self._folder = Path(tempfile.mkdtemp(prefix="postgresql-"))
        self._user = UNPRIVILEGED if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    def __enter__(self) -> Self:
        if self._user is not None:
            account = pwd.getpwnam(self._user)
            os.chown(self._folder, account.pw_uid, account.pw_gid)
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _start(self) -> None:
        data, log = self._folder / "data", self._folder / "log"
        made = subprocess.run(
            [
                self._programs / "initdb",
                "-D",
                data,
                "-U",
                "postgres",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--no-sync",
            ],
            user=self._user,
            cwd=self._folder,
            env={"LC_ALL": "C"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stderr
        settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off"}
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    self._programs / "postgres",
                    *("-D", data, "-p", str(self.port)),
                    *(part for name, value in settings.items() for part in ("-c", f"{name}={value}")),
                ],
                user=self._user,
                cwd=self._folder,
                env={"LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                psycopg.connect(self._url("postgres")).close()
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"PostgreSQL does not answer: {log.read_text()}") from None
                # The pause between polls of a foreign process, which offers nothing to wait on.
                time.sleep(0.02)
            else:
                return

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _url(self, name: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}"

    def fresh_database(self) -> str:
        """Return the URL of a new, empty database."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
        return self._url(name)
