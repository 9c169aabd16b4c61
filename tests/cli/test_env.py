"""`ductor env`: what people and machines see of environment overrides (L8)."""

import json
from pathlib import Path

import pytest

from tests.cli.shop import Shop

pytestmark = [pytest.mark.xdist_group("operating"), pytest.mark.timeout(240)]

DEFINITION = """\
type: workflow_definition
definition:
  family_slug: parking
  variables: {limit: 3, gate: "north"}
  steps:
    - {ref: open, type: action, action: core:echo, args: {gate: "${{ VARS.gate }}"}}
"""


@pytest.fixture(scope="module")
def parking(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A workflow with variables; its slug."""
    file = tmp_path_factory.mktemp("parking") / "parking.yaml"
    file.write_text(DEFINITION)
    assert shop.ductor("workflow", "publish", str(file)) == (0, "parking v1 published\n", "")
    return "parking"


def test_values_are_set_listed_and_removed(shop: Shop, parking: str, tmp_path: Path) -> None:
    """By slug; value by value or as one object; a second `set` replaces the first."""
    done = shop.ductor("env", "set", parking, "prod", "limit=9007199254740993", 'gate="south"', "--reason", "moved")
    assert done == (0, "parking in prod: gate, limit set\n", "") or done == (
        0,
        "parking in prod: limit, gate set\n",
        "",
    )
    (entry,) = shop.json("env", "list", parking)["data"]
    assert (entry["environment"], entry["variables"]) == ("prod", {"limit": 9007199254740993, "gate": "south"})
    code, output, _ = shop.ductor("env", "list", parking)
    lines = [line.split()[:3] for line in output.splitlines()]
    assert code == 0
    assert lines[0] == ["ENVIRONMENT", "VARIABLE", "VALUE"]
    assert sorted(lines[1:]) == [["prod", "gate", '"south"'], ["prod", "limit", "9007199254740993"]]

    (tmp_path / "values.json").write_text('{"limit": 4}')
    told = shop.json("env", "set", parking, "prod", "--values", f"@{tmp_path / 'values.json'}")
    assert told["data"]["variables"] == {"limit": 4}
    assert (
        shop.ductor("env", "set", parking, "test", "--values", "-", input_="{}")[1] == "parking in test: nothing set\n"
    )
    assert [one["environment"] for one in shop.json("env", "list", parking)["data"]] == ["prod", "test"]
    trail = shop.json("audit", "list", "--action", "set_env_override")["data"]
    assert "moved" in [line["reason"] for line in trail]

    assert shop.ductor("env", "delete", parking, "prod") == (0, "parking in prod: the defaults again\n", "")
    assert shop.json("env", "delete", parking, "test")["metadata"]["request_id"]
    assert shop.json("env", "list", parking)["data"] == []


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("set", "parking", "prod"), 2, "which values?"),
        (("set", "parking", "prod", "limit=1", "--values", "{}"), 2, "not both"),
        (("set", "parking", "prod", "limit"), 2, "NAME=JSON"),
        (("set", "parking", "prod", "gate=south"), 2, "is not JSON"),
        (("set", "parking", "prod", "limit=1", "limit=2"), 2, "given twice"),
        (("set", "parking", "prod", "limit=@/nowhere"), 2, "No such file"),
        (("set", "parking", "prod", "limmit=1"), 1, "did you mean `limit`?"),
        (("set", "parking", "Prod", "limit=1"), 1, "environment is 1 to 64"),
        (("delete", "parking", "prod"), 1, "`ductor env list`"),
        (("list", "nowhere"), 1, "DEFINITION_NOT_FOUND"),
    ],
)
def test_mistakes_are_told_with_a_way_out(
    shop: Shop, parking: str, arguments: tuple[str, ...], code: int, said: str
) -> None:
    """Exit code 2 for a command that cannot be meant, 1 for what the server refused."""
    ended, output, errors = shop.ductor("env", *arguments)
    assert (ended, output) == (code, "")
    assert said in errors


def test_a_failure_for_machines(shop: Shop, parking: str) -> None:
    """`--json`: one object on standard error."""
    code, output, errors = shop.ductor("env", "set", parking, "prod", "limmit=1", "--json")
    assert (code, output) == (1, "")
    assert json.loads(errors)["error"]["reason"] == "VARIABLE_UNKNOWN"
