"""The server that Kafka clients connect to: protocol, connections, handlers and their composition."""
