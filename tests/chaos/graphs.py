"""The graphs of a chaos run: chains, diamonds, fans, try/catch, choices, random layers. Every step calls the recorder, so that each leaves a trace outside."""

import itertools
import random
from collections.abc import Iterator
from typing import Any


def step(ref: str, url: str, path: str = "/ok", **fields: Any) -> dict[str, Any]:
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


def edge(source: str, target: str, type_: str = "success", **fields: Any) -> dict[str, Any]:
    return {"source_ref": source, "target_ref": target, "type": type_, **fields}


def mixed(url: str, seed: int) -> Iterator[dict[str, Any]]:
    """Definitions of many shapes; deterministic for a seed."""
    chance = random.Random(seed)
    refs = [f"s{i}" for i in range(6)]
    yield {
        "family_slug": "chain",
        "steps": [step(ref, url, "/flaky" if i % 2 else "/ok") for i, ref in enumerate(refs)],
        "edges": [edge(a, b) for a, b in itertools.pairwise(refs)],
    }
    yield {
        "family_slug": "diamond",
        "steps": [step(ref, url) for ref in "abcd"],
        "edges": [edge("a", "b"), edge("a", "c"), edge("b", "d"), edge("c", "d")],
        "checkpoints": [{"name": "both", "step_refs": ["b", "c"]}],
    }
    fan = [f"f{i}" for i in range(12)]
    yield {
        "family_slug": "fan",
        "steps": [step("start", url), *[step(ref, url, "/flaky") for ref in fan], step("end", url)],
        "edges": [*[edge("start", ref) for ref in fan], *[edge(ref, "end") for ref in fan]],
    }
    yield {
        "family_slug": "caught",
        "steps": [step("try", url, "/fail"), step("catch", url), step("go_on", url), step("after", url)],
        "edges": [
            edge("try", "go_on"),
            edge("try", "catch", "error"),
            edge("go_on", "after"),
            edge("catch", "after"),
        ],
    }
    yield {
        "family_slug": "fails",
        "steps": [step("a", url), step("b", url, "/fail"), step("c", url), step("clean", url)],
        "edges": [edge("a", "b"), edge("b", "c"), edge("b", "clean", "done")],
    }
    layers = [[f"l{depth}_{i}" for i in range(chance.randint(1, 4))] for depth in range(5)]
    edges = []
    for above, below in itertools.pairwise(layers):
        for ref in below:
            edges += [edge(source, ref) for source in chance.sample(above, chance.randint(1, len(above)))]
    yield {
        "family_slug": "layers",
        "fail_policy": "run_all",
        "steps": [
            step(ref, url, chance.choice(["/ok", "/ok", "/flaky"]), join=chance.choice(["all", "any"]))
            for layer in layers
            for ref in layer
        ],
        "edges": edges,
    }
