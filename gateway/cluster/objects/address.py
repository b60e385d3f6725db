"""Opens the object store that an address names, with its settings and variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from seqgate.gateway.cluster.objects.directory_objects import DirectoryObjects
from seqgate.gateway.cluster.objects.objects import ObjectStore, Refused
from seqgate.gateway.cluster.objects.s3_errors import is_about_certificates
from seqgate.gateway.config.cluster import BucketAddress, DirectoryAddress, parse_address
from seqgate.gateway.config.packages import install

_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
DEFAULT_REGION: Final = "us-east-1"


REQUEST_TIMEOUT_S: Final = 30.0
_CA_SETTING: Final = "seqgate.cluster.ca.file"
_CA_VARIABLE: Final = "AWS_CA_BUNDLE"


class StoreOptions(NamedTuple):
    """The settings of a store beside its address. The environment gives what is None."""

    endpoint: str | None = None
    region: str | None = None
    ca_file: str | None = None
    timeout_s: float = REQUEST_TIMEOUT_S


class _Authorities(NamedTuple):
    """The certificates of the authorities that a store's certificate may have, beside those of the system."""

    source: str
    """The setting or variable, and the path that it names."""
    pem: bytes


def store_opener(
    address: str, options: StoreOptions, environment: Mapping[str, str]
) -> Callable[[], ObjectStore]:
    """Return what opens the store at an address that `seqgate.gateway.config` has checked, now or later. The
    file of the authorities is read now, and nothing is sent before the first call.

    `environment` gives what is not set, and the credentials. obstore itself reads the other AWS_ variables,
    such as those of a role, from the environment of the process. Both raise Refused: the package for buckets
    is not installed, a variable has a value that it does not know, or the authorities can't be used.
    """
    place = parse_address(address)
    if isinstance(place, DirectoryAddress):
        path = Path(place.path)
        return lambda: DirectoryObjects(path, options.timeout_s)
    settings = _s3_settings(options.endpoint, options.region, environment)
    is_plain = settings.get("endpoint", "").startswith("http://")
    authorities = None if is_plain else _authorities(options.ca_file, environment)
    return lambda: _open_bucket(place, settings, authorities, options.timeout_s)


def _open_bucket(
    place: BucketAddress, settings: Mapping[str, str], authorities: _Authorities | None, timeout_s: float
) -> ObjectStore:
    try:
        from seqgate.gateway.cluster.objects.obstore_objects import ObstoreObjects  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise Refused(install(error.name, "a cluster in a bucket", "cluster")) from None
    pem = None if authorities is None else authorities.pem
    try:
        return ObstoreObjects(place.bucket, place.prefix, settings, timeout_s, authorities=pem)
    except Exception as error:  # noqa: BLE001 - obstore raises several kinds for what it does not understand
        if authorities is not None and is_about_certificates(str(error)):
            raise Refused(
                f"{authorities.source}, and this file has no sound certificates; name a file with the "
                "certificates (PEM) of the authorities that sign the store's certificate"
            ) from None
        raise Refused(
            f"an AWS_ variable or setting of the bucket is wrong: {str(error).splitlines()[0]}"
        ) from None


def _authorities(ca_file: str | None, environment: Mapping[str, str]) -> _Authorities | None:
    """Return the authorities that the setting or else the variable names, or None. Raises Refused."""
    path = ca_file or environment.get(_CA_VARIABLE)
    if not path:
        return None
    source = f"{_CA_SETTING if ca_file else _CA_VARIABLE} names {path}"
    try:
        return _Authorities(source, Path(path).read_bytes())
    except OSError as error:
        raise Refused(f"{source}, which can't be read: {error.strerror}") from None


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
