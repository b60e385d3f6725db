"""The address of a cluster: the bucket, or the directory, that holds its objects."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from gateway.config.setting import SettingValue

FORMS: Final = "s3://BUCKET/PREFIX or file:///DIRECTORY"
LONGEST_PREFIX: Final = 400
"""Characters of a prefix. S3 allows 1024 bytes for a prefix and a key together, and a key of Seqgate has at most 512."""
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")
_PREFIX: Final = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9_.=-]*(?:/[A-Za-z0-9_=-][A-Za-z0-9_.=-]*)*")
_OTHER_SCHEMES: Final = {
    "s3a": "write s3:// instead of s3a://",
    "s3n": "write s3:// instead of s3n://",
    "gs": "Google Cloud Storage is not supported yet",
    "gcs": "Google Cloud Storage is not supported yet",
    "az": "Azure Blob Storage is not supported yet",
    "abfs": "Azure Blob Storage is not supported yet",
    "abfss": "Azure Blob Storage is not supported yet",
    "http": "write s3://BUCKET/PREFIX here, and the URL of the store in seqgate.cluster.endpoint",
    "https": "write s3://BUCKET/PREFIX here, and the URL of the store in seqgate.cluster.endpoint",
}


class BucketAddress(NamedTuple):
    """A prefix in an S3 bucket; an empty prefix is the whole bucket."""

    bucket: str
    prefix: str


class DirectoryAddress(NamedTuple):
    """The absolute path of a directory."""

    path: str


def parse_address(text: str) -> BucketAddress | DirectoryAddress:
    """Return the place that an address names.

    Raises:
        ValueError: the text is malformed; the message is the reason, and says what to write.
    """
    scheme, separator, rest = text.strip().partition("://")
    scheme = scheme.lower()
    if not separator:
        hint = f"; write file://{text}" if text.startswith("/") else ""
        raise ValueError(f"an address has the form {FORMS}{hint}")
    if scheme in _OTHER_SCHEMES:
        raise ValueError(_OTHER_SCHEMES[scheme])
    if scheme == "s3":
        return _bucket(rest)
    if scheme == "file":
        return _directory(rest)
    raise ValueError(f"an address has the form {FORMS}, and {scheme}:// is neither")


def _bucket(rest: str) -> BucketAddress:
    if "@" in rest:
        raise ValueError(
            "credentials do not belong in the address; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    bucket, _, prefix = rest.partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise ValueError(
            f"the bucket {bucket!r} must have 3 to 63 letters, digits, dots and hyphens, as in s3://my-bucket/my-prefix"
        )
    prefix = prefix.rstrip("/")
    if prefix and not _PREFIX.fullmatch(prefix):
        raise ValueError(
            f"the prefix {prefix!r} must consist of names between single slashes; a name has letters, digits and -_.=, and begins "
            "with no dot"
        )
    if len(prefix) > LONGEST_PREFIX:
        raise ValueError(f"the prefix must have at most {LONGEST_PREFIX} characters, not {len(prefix)}")
    return BucketAddress(bucket, prefix)


def _directory(rest: str) -> DirectoryAddress:
    if not rest.startswith("/"):
        raise ValueError(
            f"a directory is named by its whole path after three slashes, such as file:///{rest.lstrip('./')}"
        )
    names = [name for name in unquote(rest).split("/") if name]
    if ".." in names or any("\0" in name for name in names):
        raise ValueError("the path of the directory must not contain `..`; write the path that it stands for")
    if not names:
        raise ValueError("name a directory below the root, such as file:///mnt/seqgate")
    return DirectoryAddress("/" + "/".join(names))


def address_complaint(value: SettingValue) -> str | None:
    """Return why a value is no address, or None."""
    try:
        parse_address(str(value))
    except ValueError as error:
        return str(error)
    return None


def endpoint_complaint(value: SettingValue) -> str | None:
    """Return why a value is no URL of an S3 store, or None."""
    form = "it must have the form http://HOST:PORT or https://HOST:PORT"
    try:
        parts = urlsplit(str(value))
        is_sound = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is no number
        return form
    if not is_sound or parts.query or parts.fragment:
        return form
    if parts.username is not None:
        return "credentials do not belong in the URL; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    return None
