"""The store that an address and the environment name is opened."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.cluster.objects.address import _s3_settings, open_objects
from gateway.cluster.objects.directory_objects import DirectoryObjects
from gateway.cluster.objects.objects import Refused
from gateway.cluster.objects.obstore_objects import ObstoreObjects

KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}


async def test_a_directory(tmp_path: Path) -> None:
    objects = open_objects(f"file://{tmp_path}", None, None, {})
    assert isinstance(objects, DirectoryObjects)
    await objects.create("a", b"content")
    assert (tmp_path / "a").read_bytes() == b"content"


def test_a_bucket() -> None:
    assert isinstance(open_objects("s3://bucket/prefix", "http://127.0.0.1:1", None, KEYS), ObstoreObjects)
    assert isinstance(open_objects("s3://bucket", None, "eu-west-1", {}), ObstoreObjects)


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
        open_objects("s3://bucket", None, None, {})
    assert "\n" not in str(told.value)


def test_without_the_package() -> None:
    program = (
        "import sys; sys.modules['obstore'] = None\n"
        "from gateway.cluster.objects.address import open_objects\n"
        "open_objects('file:///tmp', None, None, {})\n"
        "open_objects('s3://bucket', None, None, {})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=os.environ
    )
    assert done.stderr.splitlines()[-1] == (
        "gateway.cluster.objects.objects.Refused: the package obstore, which a cluster in a bucket needs, is not installed; "
        "run: pip install 'seqgate[cluster]'"
    )
