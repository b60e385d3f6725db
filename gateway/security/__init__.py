"""Who a client is, what it may do, and what protects its connection: principals, access control lists, certificates, TLS contexts."""
