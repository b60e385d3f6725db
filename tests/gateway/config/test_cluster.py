"""Addresses of clusters: which place each names, and why others name none."""

from __future__ import annotations

import pytest

from seqgate.gateway.config import ConfigError, load_config
from seqgate.gateway.config.cluster import (
    BucketAddress,
    DirectoryAddress,
    address_complaint,
    endpoint_complaint,
    parse_address,
)
from seqgate.gateway.serving import Options, run_with


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("s3://bucket", BucketAddress("bucket", "")),
        ("s3://bucket/", BucketAddress("bucket", "")),
        (" S3://my.bucket-1/a/b=1/c_2.d/ ", BucketAddress("my.bucket-1", "a/b=1/c_2.d")),
        ("file:///mnt/objects", DirectoryAddress("/mnt/objects")),
        ("file:///mnt/two%20words/", DirectoryAddress("/mnt/two words")),
    ],
)
def test_the_place_of_an_address(text: str, place: object) -> None:
    assert parse_address(text) == place


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "an address has the form s3://BUCKET/PREFIX or file:///DIRECTORY"),
        ("bucket", "an address has the form"),
        ("/mnt/objects", "write file:///mnt/objects"),
        ("ftp://host/x", "ftp:// is neither"),
        ("s3a://bucket", "write s3:// instead of s3a://"),
        ("gs://bucket", "Google Cloud Storage is not supported yet"),
        ("az://container", "Azure Blob Storage is not supported yet"),
        ("https://bucket.s3.amazonaws.com", "the URL of the store in seqgate.cluster.endpoint"),
        ("s3://", "the bucket '' must have 3 to 63 letters"),
        ("s3://ab/x", "the bucket 'ab' must have 3 to 63 letters"),
        ("s3:///bucket", "the bucket '' must have 3 to 63 letters"),
        ("s3://bucket:9000/x", "the bucket 'bucket:9000' must have"),
        ("s3://key:secret@bucket/x", "credentials do not belong in the address"),
        ("s3://bucket/a//b", "the prefix 'a//b' must consist of names between single slashes"),
        ("s3://bucket/../b", "the prefix '../b' must consist of names"),
        ("s3://bucket/.a", "begins with no dot"),
        ("s3://bucket/a b", "the prefix 'a b' must consist of names"),
        ("s3://bucket/a?b=c", "the prefix 'a?b=c' must consist of names"),
        ("s3://bucket/" + "a" * 401, "at most 400 characters, not 401"),
        ("file://mnt/objects", "three slashes, such as file:///mnt/objects"),
        ("file://./objects", "three slashes, such as file:///objects"),
        ("file:///", "name a directory below the root"),
        ("file:///mnt/../etc", "must not contain `..`"),
        ("file:///mnt/%2e%2e/etc", "must not contain `..`"),
        ("file:///mnt/a%00b", "must not contain"),
    ],
)
def test_why_an_address_is_refused(text: str, reason: str) -> None:
    assert reason in str(address_complaint(text))


@pytest.mark.parametrize("text", ["http://127.0.0.1:7070", "https://s3.example.com", "http://[::1]:80/s3"])
def test_a_right_endpoint(text: str) -> None:
    assert endpoint_complaint(text) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must have the form http://HOST:PORT"),
        ("127.0.0.1:7070", "must have the form"),
        ("s3://host", "must have the form"),
        ("http://", "must have the form"),
        ("http://host:port", "must have the form"),
        ("http://host:99999", "must have the form"),
        ("http://host/?x=y", "must have the form"),
        ("http://key:secret@host", "credentials do not belong in the URL"),
    ],
)
def test_why_an_endpoint_is_refused(text: str, reason: str) -> None:
    assert reason in str(endpoint_complaint(text))


def test_the_settings_of_a_cluster() -> None:
    config = load_config(overrides=["seqgate.cluster=s3://bucket/x", "seqgate.cluster.endpoint=http://h:1"])
    assert config.optional_str("seqgate.cluster") == "s3://bucket/x"
    assert load_config().optional_str("seqgate.cluster") is None
    with pytest.raises(
        ConfigError, match=r"^Setting seqgate\.cluster can't be 'x' \(given as a flag\): an address has"
    ):
        load_config(overrides=["seqgate.cluster=x"])


def test_a_wrong_flag_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_with(Options(cluster="/mnt/objects")) == 2
    assert capsys.readouterr().err == (
        "seqgate: --cluster /mnt/objects: an address has the form s3://BUCKET/PREFIX or file:///DIRECTORY; "
        "write file:///mnt/objects\n"
    )
