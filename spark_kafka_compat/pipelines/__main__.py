"""Lists the pipelines that run as programs."""

import sys

from seqgate.spark_kafka_compat.pipelines import PROGRAMS

sys.stdout.write(PROGRAMS)
