"""Real processes: what starts, watches, harms and stops a federation of Flower's SuperLink and nodes."""
