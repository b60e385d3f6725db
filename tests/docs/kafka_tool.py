"""Runs one of Kafka's tools in place of its shell script: `python -m tests.docs.kafka_tool kafka-topics
--list …`.
"""

from __future__ import annotations

import os
import sys

from tests.support.kafka_tools import TOOL_CLASSES, java_command


def main() -> None:
    """Become the Java process of the tool that the first argument names."""
    command = [*java_command(TOOL_CLASSES[sys.argv[1]]), *sys.argv[2:]]
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
