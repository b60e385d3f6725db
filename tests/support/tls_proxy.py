"""A proxy that speaks TLS for an endpoint without TLS: it decrypts what clients send, and encrypts the answers."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

CHUNK_BYTES = 1 << 16


def certificate(folder: Path) -> tuple[Path, Path]:
    """Return a self-signed certificate for localhost, and its key."""
    certificate_path, key_path = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=localhost",
            ),
            *("-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(key_path), "-out", str(certificate_path)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate_path, key_path


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.contextmanager
def tls_proxy(port: int, target_port: int, certificate_path: Path, key_path: Path) -> Iterator[None]:
    """Accept TLS connections at `port` while the block runs."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate_path, key_path)
    loop = asyncio.new_event_loop()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", target_port)
        await asyncio.gather(_copy(reader, back), _copy(there, writer))

    loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", port, ssl=context))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
