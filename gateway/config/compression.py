"""Settings of the codec in which batches are stored, and of the threads that recompress batches of other codecs."""

from __future__ import annotations

from gateway.config.setting import Setting, SettingType, SettingValue, whole_number

_SECTION = "Compression"
PRODUCER = "producer"
"""The compression type that keeps each batch as the producer sent it."""
UNCOMPRESSED = "uncompressed"


def _gzip_level(value: SettingValue) -> str | None:
    if value == -1 or (isinstance(value, int) and 1 <= value <= 9):
        return None
    return "Value must be between 1 and 9 or equal to -1"


def _level(codec: str, default: int, minimum: int, maximum: int) -> Setting:
    return Setting(
        name=f"compression.{codec}.level",
        topic_name=f"compression.{codec}.level",
        type=SettingType.INT,
        default=default,
        minimum=minimum,
        maximum=maximum,
        dynamic=True,
        section=_SECTION,
        doc=f"Level at which the gateway compresses with {codec}. It counts for batches that arrive in another codec; a batch of the "
        "right codec keeps its producer's level.",
    )


COMPRESSION_SETTINGS = (
    Setting(
        name="compression.type",
        topic_name="compression.type",
        type=SettingType.STRING,
        default=PRODUCER,
        choices=(UNCOMPRESSED, "zstd", "lz4", "snappy", "gzip", PRODUCER),
        dynamic=True,
        section=_SECTION,
        doc="Codec of stored batches. `producer` stores each batch as it was sent. With any other value a batch of another codec is "
        "recompressed in a thread before it is stored; a batch of the right codec is stored as it was sent. A change counts for "
        "batches that arrive afterwards.",
    ),
    Setting(
        name="compression.gzip.level",
        topic_name="compression.gzip.level",
        type=SettingType.INT,
        default=-1,
        dynamic=True,
        check=_gzip_level,
        section=_SECTION,
        doc="Level at which the gateway compresses with gzip: 1 to 9, or -1 for the library's default. It counts for batches that arrive in "
        "another codec.",
    ),
    _level("lz4", 9, 1, 17),
    _level("zstd", 3, -131072, 22),
    whole_number(
        _SECTION,
        "seqgate.recompression.threads",
        2,
        "Threads that recompress batches. Each thread holds three copies of one batch: in its old codec, decompressed (at most "
        "seqgate.batch.decompressed.max.bytes), and in its new codec. Batches that wait for a thread count in queued.max.request.bytes.",
        maximum=64,
    ),
)
