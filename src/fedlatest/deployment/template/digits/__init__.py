"""Handwritten digits on clients that are not always available."""
