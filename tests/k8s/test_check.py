"""`k8s/check.py` refuses what Kubernetes would drop without a word. What the overlays say is checked by `make manifests`."""

import copy

import pytest

from k8s import check
from tests.k8s.manifests import objects

pytestmark = pytest.mark.xdist_group("k8s")


def test_misspelt_fields_and_wrong_kinds_are_refused() -> None:
    """In a kind of Kubernetes and in one of the Gateway API; and a kind that does not exist."""
    try:
        schemas = check.Schemas()
    except check.Missing as missing:
        pytest.skip(str(missing))
    budget = copy.deepcopy(dict(objects("production", "PodDisruptionBudget")[0]))
    assert list(schemas.faults(budget)) == []
    budget["spec"] |= {"maxUnavailabel": 1, "maxUnavailable": ["one"]}
    told = "\n".join(schemas.faults(budget))
    assert "maxUnavailabel" in told
    assert "spec.maxUnavailable" in told
    route = copy.deepcopy(dict(objects("production", "GRPCRoute")[0]))
    assert list(schemas.faults(route)) == []
    route["spec"]["rules"][0]["matches"][0]["method"]["servce"] = "x"
    route["spec"]["hostnames"] = ["not a host"]
    told = "\n".join(schemas.faults(route))
    assert "servce" in told
    assert "hostnames" in told
    assert list(schemas.faults(budget | {"apiVersion": "policy/v9"})) == [
        "there is no PodDisruptionBudget in policy/v9"
    ]
