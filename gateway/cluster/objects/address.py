"""Opens the object store that an address names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gateway.cluster.objects.directory_objects import DirectoryObjects
from gateway.cluster.objects.objects import ObjectStore, Refused
from gateway.config.cluster_address import BucketAddress, DirectoryAddress, parse_address

_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
DEFAULT_REGION: Final = "us-east-1"


def open_objects(
    address: str, endpoint: str | None, region: str | None, environment: Mapping[str, str]
) -> ObjectStore:
    """Return the store at an address that `gateway.config` has checked. Nothing is sent before the first call.

    `environment` gives what is not set: the endpoint, the region and the credentials. obstore itself reads the other AWS_ variables,
    such as those of a role, from the environment of the process.

    Raises:
        Refused: the package for buckets is not installed, or a variable has a value that it does not know.
    """
    place = parse_address(address)
    if isinstance(place, DirectoryAddress):
        return DirectoryObjects(Path(place.path))
    return _open_bucket(place, _s3_settings(endpoint, region, environment))


def _open_bucket(place: BucketAddress, settings: dict[str, str]) -> ObjectStore:
    try:
        from gateway.cluster.objects.obstore_objects import ObstoreObjects  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise Refused(
            f"the package {error.name}, which a cluster in a bucket needs, is not installed; run: pip install 'seqgate[cluster]'"
        ) from None
    try:
        return ObstoreObjects(place.bucket, place.prefix, settings)
    except Exception as error:  # noqa: BLE001 - obstore raises several kinds for what it does not understand
        raise Refused(
            f"an AWS_ variable or setting of the bucket is wrong: {str(error).splitlines()[0]}"
        ) from None


def _s3_settings(endpoint: str | None, region: str | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for obstore: what is given, otherwise what the environment says."""
    settings: dict[str, str] = {"region": region or _first(environment, _REGIONS) or DEFAULT_REGION}
    url = endpoint or _first(environment, _ENDPOINTS)
    if url:
        settings["endpoint"] = url.rstrip("/")
    key, secret = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    if key and secret:
        settings["access_key_id"] = key
        settings["secret_access_key"] = secret
        if token := environment.get("AWS_SESSION_TOKEN"):
            settings["session_token"] = token
    return settings


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str:
    """Return the first variable that is set, or an empty text."""
    return next((environment[name] for name in names if environment.get(name)), "")
