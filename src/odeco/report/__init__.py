"""A result as one HTML page that needs no network."""
