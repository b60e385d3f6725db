"""A process that exits right after its last call to the object store keeps its exit code: no thread of the
store's client aborts it.
"""

from __future__ import annotations

import subprocess
import sys

from tests.compat.objects.conftest import Server
from tests.support.object_stores import ACCESS_KEY, BUCKET, SECRET_KEY

PROCESSES = 20
AT_ONCE = 4
PROGRAM = """
import asyncio, sys
from seqgate.gateway.cluster.objects.obstore_objects import ObstoreObjects

async def main():
    settings = {"endpoint": sys.argv[1], "access_key_id": sys.argv[3], "secret_access_key": sys.argv[4], "region": "us-east-1"}
    await ObstoreObjects(sys.argv[2], "exits", settings).create(sys.argv[5], b"")

asyncio.run(main())
sys.exit(3)
"""


def test_no_thread_aborts_the_process(server: Server, prefix: str) -> None:
    codes = []
    for first in range(0, PROCESSES, AT_ONCE):
        processes = [
            subprocess.Popen(
                [
                    *(sys.executable, "-c", PROGRAM, server.endpoint, BUCKET, ACCESS_KEY, SECRET_KEY),
                    f"{prefix}/{number}",
                ]
            )
            for number in range(first, first + AT_ONCE)
        ]
        codes += [process.wait() for process in processes]
    assert codes == [3] * PROCESSES
