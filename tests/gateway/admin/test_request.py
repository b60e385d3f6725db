from __future__ import annotations

from pathlib import Path

import pytest

from seqgate.gateway.admin.request import in_words


def test_an_error_of_the_system_has_its_file_and_no_number(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        (tmp_path / "none").read_bytes()
    assert in_words(missing.value) == f"{tmp_path / 'none'}: No such file or directory"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(28, "No space left on device"), "No space left on device"),
        (OSError("the file system could not be flushed"), "the file system could not be flushed"),
        (ValueError("3 is too much"), "3 is too much"),
    ],
)
def test_other_errors_say_what_they_say(error: Exception, words: str) -> None:
    assert in_words(error) == words
