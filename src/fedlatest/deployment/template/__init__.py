"""A Flower app that is copied, not imported."""
