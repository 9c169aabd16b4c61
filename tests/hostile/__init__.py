"""What users, workers and operators with bad luck or bad intent do, and what must not come of it."""
