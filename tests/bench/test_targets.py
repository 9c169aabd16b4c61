"""How figures are held against what is promised, without measuring: a share against a share, a time against a bound; what was left out is not reached."""

import copy
from typing import Any

import pytest

from bench.shares import shares
from bench.table import number, table
from bench.targets import KEYS, TARGETS, Target, figure, missed
from tests.bench.sample import SAMPLE


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.title)
def test_every_promise_finds_its_figure(target: Target) -> None:
    assert target.value(SAMPLE) is not None
    assert target.reached(SAMPLE) is True
    assert target.reached({}) is None


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.title)
def test_every_promise_can_be_missed(target: Target) -> None:
    figures = copy.deepcopy(SAMPLE)
    *path, name = target.key.split(".")
    place: Any = figures
    for step in path:
        place = place[step]
    place[name] = 0 if target.at_least else target.bound * 1.01
    assert target in missed(figures)


def test_the_bound_itself_is_reached() -> None:
    at_most, at_least = (
        Target(key="a", title="", bound=10),
        Target(key="a", of="b", title="", bound=0.35, at_least=True),
    )
    assert at_most.reached({"a": 10}) is True
    assert at_least.reached({"a": 35, "b": 100}) is True
    assert at_least.reached({"a": 34, "b": 100}) is False
    assert at_least.reached({"a": 34, "b": 0}) is None


def test_the_keys_that_others_rely_on() -> None:
    assert set(KEYS) <= set(SAMPLE)
    assert {"p50", "p99"} == set(SAMPLE["latency_1_step_ms"])
    assert all(target.key.split(".")[0] in SAMPLE for target in TARGETS)


def test_a_path_that_leads_nowhere() -> None:
    assert figure({"a": {"b": 1}}, "a.b") == 1
    assert figure({"a": {"b": 1}}, "a.c") is None
    assert figure({"a": 1}, "a.c") is None
    assert figure({"a": True}, "a") is None


def test_the_table_has_a_line_and_a_verdict_per_promise() -> None:
    figures = copy.deepcopy(SAMPLE)
    figures["idle_cores"] = 0.5
    del figures["growth_history"]
    lines = table(figures).splitlines()
    for target in TARGETS:
        (line,) = (line for line in lines[1:] if line.startswith(target.title + "  "))
        assert ("MISSED" in line) == (target.key == "idle_cores")
        assert ("not measured" in line) == (target.key == "growth_history")
    assert f"{len(TARGETS) - 2} of {len(TARGETS)} promises hold" in lines


def test_shares_are_of_the_same_run() -> None:
    found = shares(SAMPLE)
    assert found["steps_per_s_10"] == {"of_the_floor": 0.4, "of_the_limit": 0.05}
    assert found["scatter_10k_s"]["of_the_floor"] == 0.4
    assert found["latency_1_step_ms.p50"] == {"times_the_floor": 2.0}


@pytest.mark.parametrize(("value", "text"), [(None, "–"), (5836.8, "5,837"), (0.1534, "0.153"), (12.98, "13")])
def test_numbers_are_read_best_short(value: float | None, text: str) -> None:
    assert number(value) == text
