"""Code that several packages of handlers share: an API's type, limits on time and size, rights, and rows."""
