"""Handwritten digits on clients that come and go."""
