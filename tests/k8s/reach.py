"""Who reaches whom under a set of NetworkPolicies, by Kubernetes' rules: a direction that no policy selects is open, one that some select is open for
what any of them allows, and a connection needs both ends.

It knows what our policies use (labels, expressions `In` and `NotIn`, address blocks, single ports) and raises on anything else.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Object = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class End:
    """One end of a connection: a pod, or an address outside of the cluster. Policies bind pods of their own namespace."""

    name: str
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    address: str = ""


def reaches(policies: Sequence[Object], source: End, target: End, port: int, protocol: str = "TCP") -> bool:
    """Whether a connection from `source` to `target` is let through at both ends."""
    return _allowed(policies, "Egress", source, target, port, protocol) and _allowed(
        policies, "Ingress", target, source, port, protocol
    )


def _allowed(policies: Sequence[Object], direction: str, end: End, other: End, port: int, protocol: str) -> bool:
    bound = [
        policy
        for policy in policies
        if policy["metadata"]["namespace"] == end.namespace
        and direction in policy["spec"]["policyTypes"]
        and _selects(policy["spec"]["podSelector"], end.labels)
    ]
    rules = [(p, rule) for p in bound for rule in p["spec"].get(direction.lower(), ())]
    return not bound or any(_admits(policy, rule, direction, other, port, protocol) for policy, rule in rules)


def _admits(policy: Object, rule: Object, direction: str, other: End, port: int, protocol: str) -> bool:
    peers = rule.get("to" if direction == "Egress" else "from")
    return (
        "ports" not in rule or any((p.get("protocol", "TCP"), p["port"]) == (protocol, port) for p in rule["ports"])
    ) and (not peers or any(_meant(policy, peer, other) for peer in peers))


def _meant(policy: Object, peer: Object, other: End) -> bool:
    if "ipBlock" in peer:
        block = peer["ipBlock"]
        return (
            bool(other.address)
            and _within(other.address, block["cidr"])
            and not any(_within(other.address, hole) for hole in block.get("except", ()))
        )
    if other.address:
        return False
    spaces = peer.get("namespaceSelector")
    here = policy["metadata"]["namespace"] == other.namespace
    return (here if spaces is None else _selects(spaces, other.namespace_labels)) and _selects(
        peer.get("podSelector", {}), other.labels
    )


def _within(address: str, cidr: str) -> bool:
    return ipaddress.ip_address(address) in ipaddress.ip_network(cidr)


def _selects(selector: Object, labels: Mapping[str, str]) -> bool:
    for expression in selector.get("matchExpressions", ()):
        inside = labels.get(expression["key"]) in expression["values"]
        if inside != {"In": True, "NotIn": False}[expression["operator"]]:
            return False
    return bool(selector.get("matchLabels", {}).items() <= labels.items())
