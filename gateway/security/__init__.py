"""Who a client is, and what protects its connection: TLS contexts, certificates and the names of principals."""
