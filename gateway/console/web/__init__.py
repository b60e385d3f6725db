"""HTTP: headers, templates, and the way from a request to a page and back."""
