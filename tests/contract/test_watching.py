"""ops/: the dashboard and the alert rules name metrics, labels and values that a running stack has, every metric is explained, and every alert has its section
in docs/operations.md (OB-01: the labels are those that the processes bound)."""

import itertools
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import promql_parser as promql
import pytest
import pytest_asyncio
import typer
from prometheus_client.parser import text_string_to_metric_families
from ruamel.yaml import YAML

from ductord.cli.commands import app
from ductord.cli.roster import NAMES, services
from ductord.gateway.statuses import HTTP
from ductord.model.keys import PLATFORM_TENANT, TASKS
from ductord.rpc.config import Settings
from ductord.rpc.host import hosting
from ductord.rpc.permissions import PERMISSIONS
from tests.conftest import Cluster, Database
from tests.support.keys import minted

ROOT = Path(__file__).resolve().parents[2]
OPERATIONS = (ROOT / "docs" / "operations.md").read_text("utf-8")
ALERTS = OPERATIONS.split("\n## Alerts\n")[1].split("\n## ")[0]
RULES_FILE = ROOT / "ops" / "prometheus" / "alerts.yaml"
RULES: list[Any] = [
    rule for group in YAML(typ="safe").load(RULES_FILE.read_text("utf-8"))["groups"] for rule in group["rules"]
]
DASHBOARD: Any = json.loads((ROOT / "ops" / "grafana" / "ductor.json").read_text("utf-8"))
PANELS: list[Any] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]

TARGET = {"job", "instance"}
"""Labels that Prometheus gives by itself."""
SCRAPED = {"up": TARGET, "ALERTS": {"alertname", "alertstate", "severity"}}
"""Series that are Prometheus's own."""
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}

pytestmark = pytest.mark.xdist_group("watching")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def series(postgres: Cluster) -> dict[str, set[str]]:
    """The names of all series that /metrics of a whole stack has, each with its labels."""
    with postgres.database() as database:
        worker = await minted(database, PLATFORM_TENANT, TASKS)
        settings = Settings(
            database_url=database.owner,
            grpc_address="127.0.0.1:0",
            http_address="127.0.0.1:0",
            auth="keys",
            api_key=worker.token,
            drain_ms=500,
        )
        async with hosting(services(NAMES), settings) as host:
            base = f"http://{host.http_address.reachable if host.http_address else ''}"
            async with httpx.AsyncClient(base_url=base, timeout=60) as http:
                text = (await http.get("/metrics")).text
            declared: Mapping[str, Any] = host.metrics._known  # labels of which no series is there yet
    found = {}
    for family in text_string_to_metric_families(text):
        metric = declared.get(family.name)
        labels = set(getattr(metric, "_labelnames", None) or getattr(metric, "_labels", None) or ())
        for suffix in SUFFIXES.get(family.type, ("",)):
            found[family.name + suffix] = labels | TARGET | ({"le"} if suffix == "_bucket" else set())
    return found


def _expressions() -> Iterator[tuple[str, str]]:
    """(where, PromQL) of all that is asked."""
    for number, rule in enumerate(RULES):
        yield f"{rule['alert']} {number}", rule["expr"]
    for panel in PANELS:
        for target in panel["targets"]:
            yield (
                f"panel {panel['title']} {target['refId']}",
                re.sub(r"\$__(rate_interval|range)", "5m", target["expr"]),
            )
    for annotation in DASHBOARD["annotations"]["list"]:
        yield f"annotation {annotation['name']}", annotation["expr"]


EXPRESSIONS = dict(_expressions())


def _selectors(node: Any) -> Iterator[Any]:
    """Every vector selector of an expression."""
    if isinstance(node, promql.VectorSelector):
        yield node
    elif isinstance(node, promql.MatrixSelector):
        yield node.vector_selector
    else:
        for below in _below(node):
            yield from _selectors(below)


def _below(node: Any) -> list[Any]:
    if isinstance(node, promql.BinaryExpr):
        return [node.lhs, node.rhs]
    if isinstance(node, promql.NumberLiteral):
        return []
    return list(node.args) if isinstance(node, promql.Call) else [node.expr]


def _grouped(node: Any) -> Iterator[tuple[set[str], Any]]:
    """(labels, what they are taken of) of every `by` and `on`."""
    if isinstance(node, promql.AggregateExpr) and node.modifier is not None:
        yield set(node.modifier.labels), node.expr
    if isinstance(node, promql.BinaryExpr) and node.modifier is not None and node.modifier.matching is not None:
        yield set(node.modifier.matching.labels), node
    if not isinstance(node, promql.VectorSelector | promql.MatrixSelector):
        for below in _below(node):
            yield from _grouped(below)


def _labels(node: Any, series: dict[str, set[str]]) -> set[str]:
    """Labels that the result of an expression may have."""
    if isinstance(node, promql.VectorSelector | promql.MatrixSelector):
        return set.union(*(series[selector.name] for selector in _selectors(node)))
    if isinstance(node, promql.AggregateExpr):
        return set(node.modifier.labels) if node.modifier is not None else set()
    if isinstance(node, promql.Call) and node.func.name == "absent":
        return {m.name for selector in _selectors(node) for m in selector.matchers.matchers}
    return set().union(*(_labels(below, series) for below in _below(node)))


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("where", EXPRESSIONS)
async def test_what_is_asked_is_there(where: str, series: dict[str, set[str]]) -> None:
    """Every expression is PromQL, and its metrics, labels and values exist."""
    known = series | SCRAPED
    tree = promql.parse(EXPRESSIONS[where])
    for selector in _selectors(tree):
        assert selector.name in known, selector.name
        for matcher in selector.matchers.matchers:
            assert matcher.name in known[selector.name], (selector.name, matcher.name)
            for value in matcher.value.split("|"):
                assert _exists(matcher.name, value), (matcher.name, value)
    for labels, of in _grouped(tree):
        assert labels <= _labels(of, known), (labels, str(of))


@pytest.mark.asyncio(loop_scope="module")
async def test_words_name_labels_that_are_there(series: dict[str, set[str]]) -> None:
    """Legends and summaries name labels that their expression has."""
    known = series | SCRAPED
    for panel in PANELS:
        for target in panel["targets"]:
            expression = promql.parse(EXPRESSIONS[f"panel {panel['title']} {target['refId']}"])
            named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert named <= _labels(expression, known), (panel["title"], named)
    for number, rule in enumerate(RULES):
        expression = promql.parse(EXPRESSIONS[f"{rule['alert']} {number}"])
        named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert named <= _labels(expression, known), (rule["alert"], named)


@pytest.mark.asyncio(loop_scope="module")
async def test_every_metric_is_explained(series: dict[str, set[str]]) -> None:
    """docs/operations.md names each metric of ours, with labels that it has, and no other."""
    ours = {name for name in series if name.startswith("ductor_")}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in ours}
    named = {
        (name, labels)
        for name, labels in re.findall(r"`(ductor_[a-z_]+)(?:\{([^}`]*)\})?`", OPERATIONS)
        if name != "ductor_coordinator"
    }
    assert {name for name, _ in named} - {f"ductor_{service}" for service in NAMES} == families
    for name, labels in named:
        keys = {pair.partition("=")[0] for pair in labels.split(",")} - {""}
        assert keys <= series.get(name, series.get(f"{name}_bucket", set())), name


def _exists(label: str, value: str) -> bool:
    """Whether a value of a label, or a part of an alternative, is one that may come."""
    word = re.sub(r"^\W*|\W*$", "", value)
    if label == "code":
        return word in HTTP
    if label == "service":
        return word in NAMES
    if label == "method":
        return any(name.endswith(f"/{word}") for name in PERMISSIONS)
    if label in ("job", "alertname", "alertstate"):
        return word in ("ductor", "Ductor", "firing")
    return f'"{word}"' in SOURCE


SOURCE = "\n".join(path.read_text("utf-8") for path in (ROOT / "services" / "ductord").rglob("*.py"))


def test_every_alert_has_its_section() -> None:
    """What it means, what to look at, what to do; the rule's runbook leads there. And no section is of an alert that is none."""
    told = dict(re.findall(r"^### (\w+)\n\n(.+?)(?=\n### |\Z)", ALERTS, re.MULTILINE | re.DOTALL))
    assert list(told) == list(dict.fromkeys(rule["alert"] for rule in RULES))
    assert all(len(text) > 120 for text in told.values()), {name: len(text) for name, text in told.items()}
    for rule in RULES:
        assert rule["annotations"]["runbook"] == f"docs/operations.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("page", "ticket")


def test_the_commands_of_the_sections_are_there() -> None:
    """Whoever is woken can type them as they stand."""
    found = re.findall(r"`ductor ([^`]+)`", ALERTS)
    assert len(found) > 10
    for line in found:
        command: Any = typer.main.get_command(app)
        words = shlex.split(line)
        while words and hasattr(command, "commands"):
            assert words[0] in command.commands, line
            command = command.commands[words.pop(0)]
        options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        assert {word for word in words if word.startswith("--")} <= options, line


async def test_the_queries_of_the_sections_run(database: Database) -> None:
    """As the login that they are told to be asked with."""
    queries = re.findall(r"^```sql\n(.*?)^```$", ALERTS, re.MULTILINE | re.DOTALL) + re.findall(
        r"`(select [^`]+)`", ALERTS
    )
    assert len(queries) == 2
    connection = await asyncpg.connect(database.dsn("coordinator"))
    try:
        for query in queries:
            await connection.fetch(query)
    finally:
        await connection.close()


def test_the_dashboard_can_be_drawn() -> None:
    """Ids are unique, no panel lies over another, each says what it shows and asks the data source that is chosen."""
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows == ["Health", "Queue", "Coordinator", "API", "Workers", "Database"]
    places: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = set(itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])))
        assert not cells & places, panel["title"]
        places |= cells
    for panel in PANELS:
        assert panel["description"]
        assert (
            {target["datasource"]["uid"] for target in (panel, *panel["targets"])} == {"${datasource}"}
            if "datasource" in panel
            else False
        )


def test_the_pods_are_found() -> None:
    """The part for Kubernetes is YAML that names the rules' file and the job that rules and dashboard ask for."""
    tree = YAML(typ="safe").load(RULES_FILE.with_name("kubernetes.yaml").read_text("utf-8"))
    assert tree["rule_files"] == [RULES_FILE.name]
    assert [part["job_name"] for part in tree["scrape_configs"]] == ["ductor"]
    kept = [
        rule["source_labels"] for rule in tree["scrape_configs"][0]["relabel_configs"] if "target_label" not in rule
    ]
    assert ["__meta_kubernetes_pod_annotation_prometheus_io_scrape"] in kept


def test_prometheus_takes_the_rules() -> None:
    """By Prometheus's own promtool, and by the rules' own tests, where it is installed."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed; the rules were parsed without it")
    for command in (
        ["check", "rules", str(RULES_FILE)],
        ["test", "rules", str(RULES_FILE.with_name("alerts_test.yaml"))],
    ):
        done = subprocess.run([promtool, *command], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
