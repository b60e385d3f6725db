"""A load of connections: each connects, shakes hands, logs in, asks for versions, and closes.

`python -m tests.performance.connects HOST PORT SECONDS CLIENT`; prints JSON.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.performance.secured_client import Client, connected, greet

AT_ONCE = 8


def _connect_until(deadline: float, address: tuple[str, int], client: Client) -> list[float]:
    """Return the seconds that each connection took."""
    taken = []
    while (begun := time.monotonic()) < deadline:
        with connected(address, client) as connection:
            greet(connection)
            taken.append(time.monotonic() - begun)
    return taken


def main(host: str, port: str, seconds: str, client_path: str) -> None:
    client, address = Client.read(Path(client_path)), (host, int(port))
    assert client.context  # made once, before the threads
    start = time.monotonic()
    deadline = start + float(seconds)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = [pool.submit(_connect_until, deadline, address, client) for _ in range(AT_ONCE)]
        taken = sorted(number for future in running for number in future.result())
    p99_ms = taken[int(0.99 * (len(taken) - 1))] * 1000 if taken else 0.0
    counts = {"requests": len(taken), "records": len(taken), "p99_ms": round(p99_ms, 3)}
    print(json.dumps({**counts, "seconds": time.monotonic() - start}))


if __name__ == "__main__":
    main(*sys.argv[1:])
