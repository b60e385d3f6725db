"""Pipelines as programs: run them with `python -m spark_kafka_compat.pipelines.NAME` or hand the file to `spark-submit`."""
