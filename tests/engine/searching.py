"""How long the laws search."""

import os

from hypothesis import HealthCheck, settings

FACTOR = int(os.environ.get("DUCTOR_LAWS", "1"))
"""`DUCTOR_LAWS=50 pytest tests/engine` searches fifty times as long, each time elsewhere; the gate always looks at the same runs."""


def search(examples: int) -> settings:
    """Settings of a law that looks at so many examples."""
    return settings(
        max_examples=examples * FACTOR,
        derandomize=FACTOR == 1,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
