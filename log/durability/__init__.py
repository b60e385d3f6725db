"""What must become durable, and how."""
