"""Published tables, shipped as package data."""
