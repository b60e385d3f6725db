"""Keeps what the console samples: 15 minutes as sampled, a day in minutes, and both in a file.

Pages read it through `Console.history`:

    history.series(LAG, {"group": "g1"}, HOUR_MS)    times and values of one series, oldest first
    history.columns([Key, ...], HOUR_MS)             several series at the same times
    history.last(DISK_FREE, {"broker": "1"})         the newest value, None where the newest sample has none
    history.labels_of(TOPIC_RECORDS)                 the labels of each series of a metric
    history.last_write_ms("orders")                  the time of a topic's last write; None: none was seen

The history is what the console may see. A page shows a person only series of topics and groups that the
person may see: it takes their names from an answer that the cluster gave to the person.

A minute of the day has the mean of a rate, and the highest value of everything else: a peak of the lag or of
a time must not vanish. A value is None where nothing was sampled.
"""

from __future__ import annotations

import fcntl
import io
import logging
import math
import os
import struct
import threading
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from seqgate.gateway.console.metrics.producer_events import KEPT_MS, ProducerEvents, Strips

logger = logging.getLogger(__name__)

# The metrics with labels; metrics/rates.py has the names of those of the whole gateway.

LAG: Final = "lag"
"""Records that a group has not read or acknowledged. Labels: group."""
TOPIC_LAG: Final = "topic_lag"
"""The part of a group's lag in one topic. Labels: group, topic."""
TOPIC_RECORDS: Final = "topic_records_per_s"
"""Records stored. Labels: topic."""
TOPIC_BYTES_IN: Final = "topic_bytes_in_per_s"
"""Bytes stored. Labels: topic."""
TOPIC_BYTES_OUT: Final = "topic_bytes_out_per_s"
"""Bytes fetched. Labels: topic."""
TOPIC_SIZE: Final = "topic_size_bytes"
"""Bytes on disk, of the leaders' copies. Labels: topic."""
DISK_USED: Final = "disk_used_bytes"
"""Bytes of all partitions of a broker. Labels: broker."""
DISK_FREE: Final = "disk_free_bytes"
"""Free bytes of the disks of a broker. Labels: broker."""

# The ranges of time, and the limits.

QUARTER_MS: Final = 15 * 60_000
HOUR_MS: Final = 60 * 60_000
DAY_MS: Final = 24 * HOUR_MS
MINUTE_MS: Final = 60_000
GAP_MS: Final = 3 * MINUTE_MS
"""Time without a sample after which a chart shows a gap instead of a line."""
MOST_SERIES: Final = 2_000
"""Series that are kept. For a new one the series goes that has had no value for longest, if that is 15
minutes or more; otherwise the new one is not kept.
"""
MOST_POINTS: Final = 900
"""Samples of the newest 15 minutes that are kept; the oldest go first."""
LONGEST_NAME: Final = 600
"""Characters of the labels of one series; a series with longer ones is not kept."""
MOST_WRITTEN: Final = 5_000
"""Topics whose last write is remembered; the one that was written longest ago goes first."""
PER_SECOND: Final = "_per_s"
"""The end of the name of a rate."""

NO_LABELS: Final[Mapping[str, str]] = {}


class Key(NamedTuple):
    """The key of a series: its metric, and the names and values of its labels by turns."""

    metric: str
    labels: tuple[str, ...] = ()


class Series(NamedTuple):
    """Times in milliseconds, oldest first, and the value at each; None where nothing was sampled."""

    times: Sequence[int] = ()
    values: Sequence[float | None] = ()

    def known(self, last_ms: int | None = None) -> list[tuple[int, float]]:
        """Return the points with a value, of the newest `last_ms` or of all the time."""
        begin = self.times[-1] - last_ms if self.times and last_ms is not None else 0
        return [
            (time_ms, value)
            for time_ms, value in zip(self.times, self.values, strict=True)
            if value is not None and time_ms >= begin
        ]


class _Cluster(msgspec.Struct, tag="i", array_like=True):
    """The id of the cluster of all samples."""

    cluster_id: str


class _Day(msgspec.Struct, tag="d", array_like=True):
    """The times of the day's points, as an array of int64."""

    times: bytes


class _Column(msgspec.Struct, tag="c", array_like=True):
    """A series of the day, as an array of float32. Samples name the series by its number from here on."""

    number: int
    key: Key
    values: bytes


class _Sample(msgspec.Struct, tag="s", array_like=True):
    """A sample: the keys of series that are new, the values by number, and the last writes of topics."""

    time_ms: int
    keys: dict[int, Key]
    values: dict[int, float]
    written: dict[str, int]


_Frame = _Cluster | _Day | _Column | _Sample | Strips


def key_of(metric: str, labels: Mapping[str, str] = NO_LABELS) -> Key:
    return Key(metric, tuple(chain.from_iterable(sorted(labels.items()))))


class _Table:
    """Points in time, oldest first, and a column of values for each series; NaN stands for no value."""

    def __init__(self, kept_ms: int, most: int, code: str) -> None:
        self.times = array("q")
        self.columns: dict[Key, array[float]] = {}
        self._kept_ms = kept_ms
        self._most = most
        self._code = code

    def add(self, time_ms: int, values: Mapping[Key, float]) -> None:
        """Add a point. When the clock was set back, the points that it has not reached again are dropped."""
        self.cut(bisect_left(self.times, time_ms))
        for key in values:
            if key not in self.columns:
                self.columns[key] = array(self._code, [math.nan]) * len(self.times)
        self.times.append(time_ms)
        for key, column in self.columns.items():
            column.append(values.get(key, math.nan))
        surplus = max(bisect_left(self.times, time_ms - self._kept_ms), len(self.times) - self._most)
        if surplus > 0:
            del self.times[:surplus]
            for column in self.columns.values():
                del column[:surplus]

    def cut(self, begin: int) -> None:
        """Drop the points from an index on."""
        if begin < len(self.times):
            del self.times[begin:]
            for column in self.columns.values():
                del column[begin:]

    def value(self, key: Key, index: int) -> float | None:
        column = self.columns.get(key)
        return None if column is None or math.isnan(column[index]) else column[index]


class History:
    """The samples of a console. Thread-safe."""

    def __init__(self, most_series: int = MOST_SERIES) -> None:
        self._lock = threading.Lock()
        self._most_series = most_series
        self.cluster_id: str | None = None
        self._begin()

    def _begin(self) -> None:
        self._newest = _Table(QUARTER_MS, MOST_POINTS, "d")
        self._day = _Table(DAY_MS, DAY_MS // MINUTE_MS + 1, "f")
        self._seen: dict[Key, int] = {}
        """When each series had its last value."""
        self._minute: dict[Key, tuple[float, int]] = {}
        """The sum or the highest value of each series in the minute that runs, and how many values it had."""
        self._written: dict[str, int] = {}

    def belongs_to(self, cluster_id: str | None) -> bool:
        """Note the id of the cluster, None for an unknown one. Samples of another cluster are dropped; return
        whether there were any.
        """
        known, self.cluster_id = self.cluster_id, cluster_id or self.cluster_id
        if known in {None, self.cluster_id}:
            return False
        with self._lock:
            self._begin()
        return True

    def add(self, time_ms: int, values: Mapping[Key, float | None]) -> None:
        """Add a sample. Values that are None, infinite or of too many series are left out."""
        with self._lock:
            self._end_minute(time_ms)
            known = {
                key: value
                for key, value in values.items()
                if value is not None and math.isfinite(value) and self._has_room(key, time_ms)
            }
            self._seen.update(dict.fromkeys(known, time_ms))
            self._newest.add(time_ms, known)
            for key, value in known.items():
                before, count = self._minute.get(key, (0.0, 0))
                joined = before + value if key.metric.endswith(PER_SECOND) else max(before, value)
                self._minute[key] = (joined if count else value, count + 1)
            for key in [key for key, seen in self._seen.items() if seen < time_ms - DAY_MS]:
                self._forget(key)

    def wrote(self, topic: str, time_ms: int) -> None:
        """Note that somebody wrote to a topic."""
        with self._lock:
            self._written.pop(topic, None)
            self._written[topic] = time_ms
            if len(self._written) > MOST_WRITTEN:
                del self._written[next(iter(self._written))]

    def _has_room(self, key: Key, time_ms: int) -> bool:
        if key in self._seen:
            return True
        if sum(map(len, key.labels)) > LONGEST_NAME:
            return False
        if len(self._seen) >= self._most_series:
            oldest = min(self._seen, key=self._seen.__getitem__)
            if self._seen[oldest] > time_ms - QUARTER_MS:
                return False
            self._forget(oldest)
        self._seen[key] = time_ms
        return True

    def _forget(self, key: Key) -> None:
        del self._seen[key]
        self._newest.columns.pop(key, None)
        self._day.columns.pop(key, None)
        self._minute.pop(key, None)

    def _end_minute(self, time_ms: int) -> None:
        """Move the minute that ran into the day when a sample of another minute comes."""
        if not self._newest.times:
            return
        newest_ms = self._newest.times[-1]
        if _minute_of(newest_ms) == _minute_of(time_ms):
            return
        if time_ms > newest_ms:
            self._day.add(_minute_of(newest_ms), self._so_far())
        else:
            self._day.cut(bisect_left(self._day.times, _minute_of(time_ms)))
            self._seen = {key: min(seen, time_ms) for key, seen in self._seen.items()}
        self._minute.clear()

    def _so_far(self) -> dict[Key, float]:
        return {
            key: value / count if key.metric.endswith(PER_SECOND) else value
            for key, (value, count) in self._minute.items()
        }

    def series(self, metric: str, labels: Mapping[str, str] = NO_LABELS, range_ms: int = HOUR_MS) -> Series:
        """Return a series before the newest sample: as sampled for up to 15 minutes, otherwise in minutes."""
        times, (values,) = self.columns([key_of(metric, labels)], range_ms)
        return Series(times, values)

    def columns(self, keys: Sequence[Key], range_ms: int) -> tuple[list[int], list[list[float | None]]]:
        """Return the times of a range, and the values of each series at them. Where nothing was sampled for
        some minutes, a point without values stands.
        """
        with self._lock:
            points = list(self._points(keys, range_ms))
        times: list[int] = []
        values: list[list[float | None]] = [[] for _ in keys]
        for time_ms, row in points:
            if times and time_ms - times[-1] > GAP_MS:
                times.append(times[-1] + MINUTE_MS)
                for column in values:
                    column.append(None)
            times.append(time_ms)
            for column, value in zip(values, row, strict=True):
                column.append(value)
        return times, values

    def _points(self, keys: Sequence[Key], range_ms: int) -> Iterator[tuple[int, list[float | None]]]:
        newest, day = self._newest, self._day
        if not newest.times:
            return
        begin = newest.times[-1] - range_ms
        is_fine = range_ms <= QUARTER_MS
        end = bisect_left(day.times, newest.times[0] - MINUTE_MS + 1) if is_fine else len(day.times)
        for index in range(bisect_left(day.times, begin), end):
            yield day.times[index], [day.value(key, index) for key in keys]
        if is_fine:
            for index in range(bisect_left(newest.times, begin), len(newest.times)):
                yield newest.times[index], [newest.value(key, index) for key in keys]
        else:
            so_far = self._so_far()
            yield newest.times[-1], [so_far.get(key) for key in keys]

    def frames(self, kept_ms: int = DAY_MS) -> Iterator[_Frame]:
        """Yield all that is kept of the last `kept_ms`, for `restore`."""
        with self._lock:
            numbers = {key: number for number, key in enumerate(self._seen)}
            newest, day = self._newest, self._day
            last_ms = newest.times[-1] if newest.times else 0
            first = bisect_left(day.times, last_ms - kept_ms)
            if self.cluster_id is not None:
                yield _Cluster(self.cluster_id)
            yield _Day(day.times[first:].tobytes())
            for key, number in numbers.items():
                column = day.columns.get(key)
                yield _Column(number, key, b"" if column is None else column[first:].tobytes())
            written = dict(self._written)
            for index in range(self._first_whole(), len(newest.times)):
                if newest.times[index] >= last_ms - kept_ms:
                    row = {
                        number: column[index]
                        for key, column in newest.columns.items()
                        if not math.isnan(column[index])
                        for number in [numbers[key]]
                    }
                    yield _Sample(newest.times[index], {}, row, written)
                    written = {}

    def _first_whole(self) -> int:
        """Return the first sample of a whole minute; the day has the minute before."""
        newest, day = self._newest.times, self._day.times
        if not newest or not day or day[0] >= _minute_of(newest[0]):
            return 0
        return bisect_left(newest, _minute_of(newest[0]) + MINUTE_MS)

    def restore(self, frames: Iterable[_Frame]) -> None:
        """Take what `frames` yielded, and samples that came later, into an empty history. Raises LookupError
        and ValueError for frames that do not fit together.
        """
        keys: dict[int, Key] = {}
        for frame in frames:
            match frame:
                case _Cluster():
                    self.cluster_id = frame.cluster_id
                case _Day():
                    self._day.times = array("q", frame.times)
                case _Column():
                    keys[frame.number] = frame.key
                    with self._lock:
                        self._restore_column(frame)
                case _Sample():
                    keys |= frame.keys
                    self.add(frame.time_ms, {keys[number]: value for number, value in frame.values.items()})
                    for topic, time_ms in frame.written.items():
                        self.wrote(topic, time_ms)

    def _restore_column(self, frame: _Column) -> None:
        times, column = self._day.times, array("f", frame.values)
        if len(column) == len(times) > 0 and self._has_room(frame.key, times[-1]):
            self._day.columns[frame.key] = column

    def last(self, metric: str, labels: Mapping[str, str] = NO_LABELS) -> float | None:
        """Return the value of the newest sample."""
        with self._lock:
            return self._newest.value(key_of(metric, labels), -1)

    def __contains__(self, key: Key) -> bool:
        with self._lock:
            return key in self._seen

    def labels_of(self, metric: str) -> list[dict[str, str]]:
        """Return the labels of each series of a metric that is kept."""
        with self._lock:
            found = [key.labels for key in self._seen if key.metric == metric]
        return [dict(zip(labels[::2], labels[1::2], strict=True)) for labels in found]

    def last_write_ms(self, topic: str) -> int | None:
        """Return when somebody last wrote to a topic; None where no sample has shown a write."""
        with self._lock:
            return self._written.get(topic)


def _minute_of(time_ms: int) -> int:
    return time_ms - time_ms % MINUTE_MS


# The file of a history: a magic line, then frames of a length, a CRC-32 and a MessagePack value. Each sample
# is appended, with what the producers did since the one before. When the file would pass its limit, it is
# written anew from memory and renamed. A console that is killed loses the sample that it was writing: the
# next one cuts the torn end off. Nothing is flushed, so a power failure may cost more.

MOST_BYTES: Final = 32 << 20
"""The largest file; a whole history takes about half."""
RETRY_MS: Final = 5 * MINUTE_MS
"""Time after a failure after which the file is written anew."""
_MAGIC: Final = b"seqgate console history 1\n"
_HEADER: Final = struct.Struct("<II")
_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(_Frame)


class HistoryFile:
    """The file in which one console at a time keeps its history, and the strips of producers."""

    def __init__(
        self, path: Path, history: History, producers: ProducerEvents, most_bytes: int = MOST_BYTES
    ) -> None:
        self.path = path
        self.trouble: str | None = None
        """Why samples are not written at present."""
        self._history = history
        self._producers = producers
        self._most = most_bytes
        self._file: io.FileIO | None = None
        self._size = 0
        self._numbers: dict[Key, int] = {}
        self._failed_ms: int | None = None

    def open(self, cluster_id: str | None = None) -> None:
        """Read what the file has of this cluster into the history, and cut off its torn end. Of an unknown
        cluster all is read, until `belongs_to` knows better.
        """
        try:
            self._file = self._locked(self.path)
            frames, self._size = _frames_in(self._file.read(self._most))
            found = next((frame.cluster_id for frame in frames if isinstance(frame, _Cluster)), None)
            if cluster_id is not None and found not in {None, cluster_id}:
                self._set_aside(found)
            else:
                self._history.restore(frames)
                self._producers.restore(frame for frame in frames if isinstance(frame, Strips))
                self._numbers = _numbers_of(frames)
                self._file.truncate(self._size)
            self.belongs_to(cluster_id)
        except (OSError, LookupError, ValueError) as error:
            self._fail(error, None)

    def belongs_to(self, cluster_id: str | None) -> None:
        """Note the id of the cluster, None for an unknown one. A file of another cluster is set aside."""
        known = self._history.cluster_id
        if cluster_id in {None, known}:
            return
        begins_anew = self._history.belongs_to(cluster_id)
        if begins_anew:
            self._producers.begin()
        if self._file is None:
            return
        try:
            if begins_anew:
                self._set_aside(known)
            elif self._size and self._size < self._most - LONGEST_NAME:
                frame = _framed(_Cluster(str(cluster_id)))
                _write(self._file, frame)
                self._size += len(frame)
        except OSError as error:
            self._fail(error, None)

    def _set_aside(self, cluster_id: str | None) -> None:
        """Begin the file anew; what it has of another cluster goes to a file beside it. Raises OSError."""
        kept = self.path.with_name(self.path.name + ".before")
        logger.warning(
            "%s has the history of cluster %s, which the console does not show; it begins anew, and the old "
            "history is in %s: give each cluster a file of its own",
            self.path,
            cluster_id,
            kept,
        )
        self.path.replace(kept)
        self.close()
        self._file, self._size, self._numbers = self._locked(self.path), 0, {}

    def append(self, time_ms: int, values: Mapping[Key, float | None], written: Mapping[str, int]) -> None:
        """Write a sample that the history has just taken."""
        failed_ms = self._failed_ms
        # negative after the clock was set back
        if self._file is None and (failed_ms is None or 0 <= time_ms - failed_ms < RETRY_MS):
            return
        known = {key: value for key, value in values.items() if value is not None and math.isfinite(value)}
        new = {
            key: len(self._numbers) + index for index, key in enumerate(known.keys() - self._numbers.keys())
        }
        numbers = self._numbers | new
        sample = _Sample(
            time_ms,
            {number: key for key, number in new.items()},
            {numbers[key]: value for key, value in known.items()},
            dict(written),
        )
        try:
            text = _framed(self._producers.frame(time_ms)) + _framed(sample)
            if self._file is None or not self._size or self._size + len(text) > self._most:
                self._write_anew(time_ms)
            else:
                _write(self._file, text)
                self._size += len(text)
                self._numbers = numbers
            self.trouble = None
        except OSError as error:
            self._fail(error, time_ms)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write_anew(self, time_ms: int) -> None:
        kept_ms = DAY_MS
        while True:
            frames = list(self._history.frames(kept_ms))
            if kept_ms:
                frames.append(self._producers.frame(time_ms, min(kept_ms, KEPT_MS)))
            text = _MAGIC + b"".join(map(_framed, frames))
            if len(text) <= self._most // 2 or kept_ms == 0:
                break
            kept_ms //= 2
        temporary = self.path.with_name(self.path.name + ".new")
        written = self._locked(temporary)
        try:
            written.truncate(0)
            _write(written, text)
            temporary.replace(self.path)
        except OSError:
            written.close()
            raise
        self.close()
        self._file, self._size, self._numbers = written, len(text), _numbers_of(frames)

    def _locked(self, path: Path) -> io.FileIO:
        """Return the file, which no other console has open. Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "a+b", buffering=0, opener=_private)  # noqa: SIM115 - stays open
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.seek(0)
        except BlockingIOError:
            file.close()
            raise OSError("another console uses it; give each its own file") from None
        return file

    def _fail(self, error: Exception, time_ms: int | None) -> None:
        """Go on in memory. A time says from when on the file may be written anew."""
        self.close()
        self._failed_ms = time_ms
        self.trouble = f"{self.path}: {getattr(error, 'strerror', None) or error}"
        logger.warning("the console keeps its history in memory only: %s", self.trouble)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _write(file: io.FileIO, text: bytes) -> None:
    if file.write(text) != len(text):
        raise OSError("the disk is full")


def _framed(frame: _Frame) -> bytes:
    text = _encode(frame)
    return _HEADER.pack(len(text), zlib.crc32(text)) + text


def _frames_in(text: bytes) -> tuple[list[_Frame], int]:
    """Return the whole frames, and where they end; (none, 0) for an empty file. Raises ValueError."""
    if text and not text.startswith(_MAGIC):
        raise ValueError("it is no history of a console; name another file")
    found: list[_Frame] = []
    at = len(_MAGIC) if text else 0
    while at + _HEADER.size <= len(text):
        length, checksum = _HEADER.unpack_from(text, at)
        body = text[at + _HEADER.size : at + _HEADER.size + length]
        if len(body) < length or zlib.crc32(body) != checksum:
            break
        try:
            found.append(_decoder.decode(body))
        except msgspec.MsgspecError:
            break
        at += _HEADER.size + length
    return found, at


def _numbers_of(frames: Iterable[_Frame]) -> dict[Key, int]:
    numbers: dict[Key, int] = {}
    for frame in frames:
        match frame:
            case _Column():
                numbers[frame.key] = frame.number
            case _Sample():
                numbers |= {key: number for number, key in frame.keys.items()}
    return numbers
