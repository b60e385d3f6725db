"""The configurations of topics, brokers and groups."""
