from __future__ import annotations

import io

import msgspec
import pytest

from seqgate.log.compaction.cleaner import serve
from seqgate.log.compaction.job import (
    JOB_VERSION,
    CleaningFailed,
    UnknownJobVersion,
    decode_job,
    decode_report,
)


@pytest.mark.parametrize("fields", [{}, {"version": JOB_VERSION + 1, "logs": []}])
def test_a_job_of_another_release_is_refused_by_its_version(fields: dict[str, object]) -> None:
    frame = msgspec.msgpack.encode(fields)
    with pytest.raises(UnknownJobVersion, match=r"cleaning job of version \d.* restart the gateway"):
        decode_job(frame)


def test_the_process_reports_that_and_goes_on() -> None:
    frame = msgspec.msgpack.encode({"version": JOB_VERSION + 1})
    jobs = io.BytesIO((len(frame).to_bytes(4, "big") + frame) * 2)
    reports = io.BytesIO()
    serve(jobs, reports)
    sent = reports.getvalue()
    half = len(sent) // 2
    assert sent[:half] == sent[half:]
    report = decode_report.decode(sent[4:half])
    assert isinstance(report, CleaningFailed)
    assert (report.is_corrupt, report.is_of_disk) == (False, False)
