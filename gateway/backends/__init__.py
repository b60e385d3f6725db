"""The backend of a gateway's records: where they are durable, and what a start and a stop do for that."""
