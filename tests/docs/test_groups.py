"""The gate's own order: tests that must not run beside each other, or that share a stack, are one test process's."""

import pytest


@pytest.mark.xdist_group("together")
def test_a_group_has_its_name_where_the_scheduler_looks_for_it(request: pytest.FixtureRequest) -> None:
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("only where tests are spread over processes")
    assert request.node.nodeid.endswith("@together")
