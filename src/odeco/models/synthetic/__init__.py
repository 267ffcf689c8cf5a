"""Private synthetic tables."""
