"""The client for other gateways: requests of the Kafka protocol over the listener between brokers."""
