"""The store that an address and the environment name is opened."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from seqgate.gateway.cluster.objects.address import StoreOptions, _s3_settings, store_opener
from seqgate.gateway.cluster.objects.directory_objects import DirectoryObjects
from seqgate.gateway.cluster.objects.objects import ObjectStore, Refused
from seqgate.gateway.cluster.objects.obstore_objects import ObstoreObjects
from seqgate.gateway.config import load_config
from seqgate.gateway.runtime.loop.machine import Machine
from tests.support.certificates import Authority


def open_objects(address: str, options: StoreOptions, environment: Mapping[str, str]) -> ObjectStore:
    return store_opener(address, options, environment)()


KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}


async def test_a_directory(tmp_path: Path) -> None:
    objects = open_objects(f"file://{tmp_path}", StoreOptions(), {})
    assert isinstance(objects, DirectoryObjects)
    await objects.create("a", b"content")
    assert (tmp_path / "a").read_bytes() == b"content"


def test_a_bucket() -> None:
    assert isinstance(
        open_objects("s3://bucket/prefix", StoreOptions("http://127.0.0.1:1"), KEYS), ObstoreObjects
    )
    assert isinstance(open_objects("s3://bucket", StoreOptions(region="eu-west-1"), {}), ObstoreObjects)


def test_a_setting_comes_before_the_environment() -> None:
    environment = {
        "AWS_ENDPOINT_URL": "http://general/",
        "AWS_DEFAULT_REGION": "general",
        "AWS_SESSION_TOKEN": "token",
        **KEYS,
    }
    credentials = {"access_key_id": "key", "secret_access_key": "secret", "session_token": "token"}
    assert _s3_settings(None, None, environment) == {
        "endpoint": "http://general",
        "region": "general",
        **credentials,
    }
    environment |= {"AWS_ENDPOINT_URL_S3": "http://s3", "AWS_REGION": "region"}
    assert _s3_settings(None, None, environment) == {
        "endpoint": "http://s3",
        "region": "region",
        **credentials,
    }
    assert _s3_settings("http://set", "set", environment) == {
        "endpoint": "http://set",
        "region": "set",
        **credentials,
    }
    assert _s3_settings(None, None, {}) == {"region": "us-east-1"}


def test_a_variable_that_obstore_does_not_understand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "perhaps")
    with pytest.raises(
        Refused, match=r"^an AWS_ variable or setting of the bucket is wrong: .*perhaps"
    ) as told:
        open_objects("s3://bucket", StoreOptions(), {})
    assert "\n" not in str(told.value)


def test_without_the_package() -> None:
    program = (
        "import sys; sys.modules['obstore'] = None\nfrom seqgate.gateway.cluster.objects.address import "
        "StoreOptions, store_opener\nstore_opener('file:///tmp', StoreOptions(), "
        "{})()\nstore_opener('s3://bucket', StoreOptions(), {})()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=os.environ
    )
    assert done.stderr.splitlines()[-1] == (
        "seqgate.gateway.cluster.objects.objects.Refused: the package obstore, which a cluster in a bucket "
        "needs, is not installed; run: pip install 'seqgate[cluster]'"
    )


def test_the_file_of_the_authorities_is_read(tmp_path: Path) -> None:
    file, nowhere = Authority().write(tmp_path / "ca.pem"), str(tmp_path / "nowhere")
    environment = {"AWS_ENDPOINT_URL": "https://store", **KEYS}
    variable = {**environment, "AWS_CA_BUNDLE": nowhere}
    assert isinstance(open_objects("s3://bucket", StoreOptions(ca_file=str(file)), variable), ObstoreObjects)
    for options, given, name in (
        (StoreOptions(ca_file=nowhere), environment, "seqgate.cluster.ca.file"),
        (StoreOptions(), variable, "AWS_CA_BUNDLE"),
        (StoreOptions(), {"AWS_CA_BUNDLE": nowhere}, "AWS_CA_BUNDLE"),
    ):
        with pytest.raises(Refused) as told:
            open_objects("s3://bucket", options, given)
        assert str(told.value) == f"{name} names {nowhere}, which can't be read: No such file or directory"
    assert isinstance(
        open_objects("s3://bucket", StoreOptions("http://store", ca_file=nowhere), {}), ObstoreObjects
    ), "no certificate is needed without TLS"


@pytest.mark.parametrize(
    "content",
    ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"],
    ids=["empty", "text", "damaged"],
)
def test_a_file_without_sound_certificates(tmp_path: Path, content: str) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(content)
    with pytest.raises(Refused) as told:
        open_objects("s3://bucket", StoreOptions(ca_file=str(file)), KEYS)
    assert str(told.value).startswith(
        f"seqgate.cluster.ca.file names {file}, and this file has no sound certificates; name a file"
    )


async def test_a_store_that_is_opened_later_has_the_authorities_of_now(tmp_path: Path) -> None:
    file = Authority().write(tmp_path / "ca.pem")
    opener = store_opener("s3://bucket", StoreOptions(ca_file=str(file)), KEYS)
    file.unlink()
    assert isinstance(opener(), ObstoreObjects)


@pytest.mark.parametrize("address", ["s3://bucket", "file:///tmp"])
async def test_the_timeout_of_requests_is_a_setting(address: str) -> None:
    config = load_config(
        overrides=[f"seqgate.cluster={address}", "seqgate.cluster.request.timeout.ms=200000"]
    )
    objects = Machine().objects(config)
    assert isinstance(objects, ObstoreObjects | DirectoryObjects)
    assert objects._timeout_s >= 200
    await objects.close()
