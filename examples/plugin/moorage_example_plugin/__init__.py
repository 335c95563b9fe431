"""A filter and a weigher for Moorage, to copy from."""
