"""The sequence rule of producer names: does the log already hold this record, whichever producer sent it?

The package is pure, like `seq_validator`. An application's name and sequence ids outlive its producers.
"""

from __future__ import annotations

from seqgate.seq_validator.names.entry import (
    MAX_SEQUENCE_ID,
    NO_NAME_EPOCH,
    CorruptNames,
    NameAdvance,
    NamedRecord,
    NameRejectionReason,
    NamesRejected,
    NameState,
)
from seqgate.seq_validator.names.entry import VERSION as NAMES_VERSION
from seqgate.seq_validator.names.entry import decode as decode_names
from seqgate.seq_validator.names.entry import encode as encode_names
from seqgate.seq_validator.names.entry import newer_version as newer_names_version
from seqgate.seq_validator.names.table import (
    NO_PRODUCER,
    NameBudget,
    NameTable,
    TopicNames,
    WrittenName,
    advances_of,
)

__all__ = [
    "MAX_SEQUENCE_ID",
    "NAMES_VERSION",
    "NO_NAME_EPOCH",
    "NO_PRODUCER",
    "CorruptNames",
    "NameAdvance",
    "NameBudget",
    "NameRejectionReason",
    "NameState",
    "NameTable",
    "NamedRecord",
    "NamesRejected",
    "TopicNames",
    "WrittenName",
    "advances_of",
    "decode_names",
    "encode_names",
    "newer_names_version",
]
