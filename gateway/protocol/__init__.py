"""The bytes of the Kafka protocol: frames, headers, and the messages that kio's generated schemas describe."""
