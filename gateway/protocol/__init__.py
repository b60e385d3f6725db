"""The bytes of the Kafka protocol: frames, headers, and the messages of kio's generated schemas."""
