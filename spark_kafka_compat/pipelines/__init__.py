"""The pipelines as programs: run `python -m spark_kafka_compat.pipelines.NAME`, or pass the file to `spark-submit`."""
