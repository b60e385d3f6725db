"""A store whose certificate a private authority has signed is trusted when a file names the authority, and
refused otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seqgate.gateway.cluster.objects.address import StoreOptions, store_opener
from seqgate.gateway.cluster.objects.objects import ObjectStore, Refused, Untrusted
from seqgate.gateway.cluster.objects.probe import probe
from tests.support.certificates import Authority, Certified
from tests.support.object_stores import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, MotoServer, Versitygw
from tests.support.setup_peers import versitygw_program

ENVIRONMENT = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": REGION}
SECURE_STORE = Versitygw if versitygw_program() else MotoServer
Store = MotoServer | Versitygw


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority("Private")


@pytest.fixture
def store(authority: Authority) -> Iterator[Store]:
    with SECURE_STORE(authority.listener()) as server:
        yield server


def opened(store: Store, ca_file: Path | None, host: str = "127.0.0.1", **variables: str) -> ObjectStore:
    options = StoreOptions(f"https://{host}:{store.port}", ca_file=None if ca_file is None else str(ca_file))
    return store_opener(f"s3://{BUCKET}/test", options, ENVIRONMENT | variables)()


async def test_the_authority_of_a_file_is_trusted(store: Store, authority: Authority, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(f"# Müller's authorities\n{Authority('Other').pem}\n{authority.pem}")
    by_setting = opened(store, file, AWS_CA_BUNDLE=str(tmp_path / "unused"))
    await probe(by_setting, "fresh")
    await by_setting.create("a", b"content")
    assert await opened(store, None, AWS_CA_BUNDLE=str(file)).get("a") == b"content"


@pytest.mark.parametrize("write", [lambda path: Authority("Other").write(path), lambda _path: None])
async def test_an_unknown_authority(
    store: Store, tmp_path: Path, write: Callable[[Path], Path | None]
) -> None:
    await refused(
        opened(store, write(tmp_path / "ca.pem")),
        "no authority that is trusted has signed the store's certificate; name a file with the authority's "
        "certificate (PEM) by seqgate.cluster.ca.file or AWS_CA_BUNDLE",
    )


async def test_a_certificate_of_another_host(authority: Authority, tmp_path: Path) -> None:
    with SECURE_STORE(authority.listener(names=("store.example",))) as store:
        objects = opened(store, authority.write(tmp_path / "ca.pem"), host="localhost")
        await refused(
            objects,
            "the store's certificate is for other hosts than the one in seqgate.cluster.endpoint; name a "
            "host of the certificate",
        )


async def test_an_expired_certificate(authority: Authority, tmp_path: Path) -> None:
    with SECURE_STORE(authority.listener(days=-1)) as store:
        objects = opened(store, authority.write(tmp_path / "ca.pem"))
        await refused(
            objects, "the store's certificate has expired; renew it, or correct the clock of this machine"
        )


async def test_the_certificate_of_an_authority_is_none_of_a_server(
    authority: Authority, tmp_path: Path
) -> None:
    with SECURE_STORE(Certified(authority._key, authority.certificate)) as store:
        objects = opened(store, authority.write(tmp_path / "ca.pem"))
        await refused(
            objects, "the store's certificate is that of an authority (CA:TRUE), which TLS does not "
        )


async def refused(objects: ObjectStore, sentence: str) -> None:
    """Check that each call fails with this sentence, and that a start refuses the store."""
    for call in (objects.create("a", b""), objects.get("a"), objects.delete("a")):
        with pytest.raises(Untrusted) as told:
            await call
        assert str(told.value).startswith(f"s3://{BUCKET}/test/a: {sentence}")
    with pytest.raises(Refused) as refusal:
        await probe(objects, "fresh")
    assert sentence in str(refusal.value)
