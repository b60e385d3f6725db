"""S3 stores as processes for tests: moto's server, and versitygw, which `make peers` builds.

moto checks no signatures and is slow; versitygw is a store that people use, and carries out conditional
writes for many racers.
"""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from seqgate.gateway.cluster.objects.obstore_objects import ObstoreObjects
from tests.support.certificates import Certified
from tests.support.gateway_process import free_port
from tests.support.setup_peers import versitygw_program

ACCESS_KEY, SECRET_KEY = "test", "testtest"
REGION = "us-east-1"
BUCKET = "seqgate"
START_TIMEOUT_S = 60.0


class _Server:
    """A store process as a context manager, with one empty bucket. With a certificate it speaks TLS."""

    def __init__(self, name: str, certified: Certified | None = None) -> None:
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
        self.certificate, self.key = self.folder / "certificate.pem", self.folder / "key.pem"
        self.is_secure = certified is not None
        if certified is not None:
            self.certificate.write_text(certified.certificate_pem)
            self.key.write_text(certified.key_pem())
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http{'s' if self.is_secure else ''}://127.0.0.1:{self.port}"

    def objects(
        self,
        prefix: str = "",
        *,
        host: str = "127.0.0.1",
        port: int | None = None,
        timeout_s: float = 30.0,
        bucket: str = BUCKET,
    ) -> ObstoreObjects:
        """Return a client of the store; `host` and `port` are a proxy's."""
        return ObstoreObjects(
            bucket,
            prefix,
            {
                "endpoint": self.endpoint if port is None else f"http://{host}:{port}",
                "region": REGION,
                "access_key_id": ACCESS_KEY,
                "secret_access_key": SECRET_KEY,
            },
            timeout_s,
        )

    def start(self) -> None:
        """Start, and wait until the store answers requests to the bucket."""
        log = self.folder / "log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | self.environment(),
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the store does not answer: {log.read_text()}")
            # The pause between polls of a foreign process, which offers nothing to wait on.
            time.sleep(0.02)
        self.create_bucket(BUCKET)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        return {}

    def create_bucket(self, name: str) -> None:
        raise NotImplementedError

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                pass
            obstore.get(_plain_store(self.endpoint, "nosuchbucket"), "nosuchkey")
        except (BaseError, OSError) as error:
            return "<Code>NoSuchBucket" in str(error)
        return False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


_MOTO: Final = """
import threading
from moto.s3.responses import S3Response
from moto.server import main

def put_object(self, put=S3Response.put_object, one_at_a_time=threading.Lock()):
    with one_at_a_time:
        return put(self)

S3Response.put_object = put_object
main()
"""


class MotoServer(_Server):
    """moto's server. Its objects are in memory and end with the process.

    moto looks at the condition of a put and stores the object in two steps, in a thread for each request, so
    that on a busy machine two puts of one condition succeeded. Here it carries out one put at a time.
    """

    def __init__(self, certified: Certified | None = None) -> None:
        super().__init__("moto", certified)

    def command(self) -> Sequence[str]:
        tls = ("-s", "-c", str(self.certificate), "-k", str(self.key)) if self.is_secure else ()
        return [sys.executable, "-c", _MOTO, "-H", "127.0.0.1", "-p", str(self.port), *tls]

    def create_bucket(self, name: str) -> None:
        # moto checks no signatures, but wants to see one.
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")
        request.add_header(
            "Authorization", f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/20260101/{REGION}/s3/aws4_request"
        )
        context = ssl._create_unverified_context() if self.is_secure else None
        with urllib.request.urlopen(request, timeout=START_TIMEOUT_S, context=context):
            return


class Versitygw(_Server):
    """versitygw on files. A restart after `kill` finds the objects again."""

    def __init__(self, certified: Certified | None = None) -> None:
        super().__init__("versitygw", certified)
        self._program = versitygw_program()
        if self._program is None:
            raise RuntimeError("versitygw is not there; run: make peers")
        (self.folder / "buckets").mkdir()

    def command(self) -> Sequence[str]:
        place = str(self.folder / "buckets")
        return [
            str(self._program),
            *("--quiet", "--keep-alive", "--port", f"127.0.0.1:{self.port}", "--region", REGION),
            *(("--cert", str(self.certificate), "--key", str(self.key)) if self.is_secure else ()),
            *("posix", place),
        ]

    def environment(self) -> Mapping[str, str]:
        return {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY, "GOMAXPROCS": "2"}

    def create_bucket(self, name: str) -> None:
        (self.folder / "buckets" / name).mkdir(exist_ok=True)


def _plain_store(endpoint: str, bucket: str) -> S3Store:
    return S3Store(
        bucket,
        endpoint=endpoint,
        region=REGION,
        access_key_id=ACCESS_KEY,
        secret_access_key=SECRET_KEY,
        client_options={"allow_http": True, "allow_invalid_certificates": True},
        retry_config={"max_retries": 0},
    )
