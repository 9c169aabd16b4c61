"""The graphs of a chaos run: chains, diamonds, fans, try/catch, choices, random layers. Every step calls the recorder, so that each leaves a trace outside."""

import itertools
import random
from collections.abc import Iterator
from typing import Any


def _step(ref: str, url: str, path: str = "/ok", **fields: Any) -> dict[str, Any]:
    return {
        "ref": ref,
        "type": "action",
        "action": "http:request",
        "args": {"method": "POST", "url": f"{url}{path}"},
        "timeout_ms": 20_000,
        "retry_max_attempts": 4,
        "retry_backoff_ms": 100,
        "max_lost": 50,
        **fields,
    }


def _edge(source: str, target: str, type_: str = "success", **fields: Any) -> dict[str, Any]:
    return {"source_ref": source, "target_ref": target, "type": type_, **fields}


def mixed(url: str, seed: int) -> Iterator[dict[str, Any]]:
    """Definitions of many shapes; deterministic for a seed."""
    chance = random.Random(seed)
    refs = [f"s{i}" for i in range(6)]
    yield {
        "family_slug": "chain",
        "steps": [_step(ref, url, "/flaky" if i % 2 else "/ok") for i, ref in enumerate(refs)],
        "edges": [_edge(a, b) for a, b in itertools.pairwise(refs)],
    }
    yield {
        "family_slug": "diamond",
        "steps": [_step(ref, url) for ref in "abcd"],
        "edges": [_edge("a", "b"), _edge("a", "c"), _edge("b", "d"), _edge("c", "d")],
        "checkpoints": [{"name": "both", "step_refs": ["b", "c"]}],
    }
    fan = [f"f{i}" for i in range(12)]
    yield {
        "family_slug": "fan",
        "steps": [_step("start", url), *[_step(ref, url, "/flaky") for ref in fan], _step("end", url)],
        "edges": [*[_edge("start", ref) for ref in fan], *[_edge(ref, "end") for ref in fan]],
    }
    yield {
        "family_slug": "caught",
        "steps": [_step("try", url, "/fail"), _step("catch", url), _step("go_on", url), _step("after", url)],
        "edges": [
            _edge("try", "go_on"),
            _edge("try", "catch", "error"),
            _edge("go_on", "after"),
            _edge("catch", "after"),
        ],
    }
    yield {
        "family_slug": "fails",
        "steps": [_step("a", url), _step("b", url, "/fail"), _step("c", url), _step("clean", url)],
        "edges": [_edge("a", "b"), _edge("b", "c"), _edge("b", "clean", "done")],
    }
    layers = [[f"l{depth}_{i}" for i in range(chance.randint(1, 4))] for depth in range(5)]
    edges = []
    for above, below in itertools.pairwise(layers):
        for ref in below:
            edges += [_edge(source, ref) for source in chance.sample(above, chance.randint(1, len(above)))]
    yield {
        "family_slug": "layers",
        "fail_policy": "run_all",
        "steps": [
            _step(ref, url, chance.choice(["/ok", "/ok", "/flaky"]), join=chance.choice(["all", "any"]))
            for layer in layers
            for ref in layer
        ],
        "edges": edges,
    }
