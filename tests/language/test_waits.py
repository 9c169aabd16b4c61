"""What a definition may say about steps that wait, and what it may not (rulings E2 to E6, G7, L1, L2, L3, A3; TC-04)."""

from typing import Any

import pytest
from msgspec.structs import replace

from ductord.engine.compile import compile_definition, manifest_hash
from ductord.engine.document import read_document
from ductord.engine.export import export_yaml, json_schema, mermaid
from ductord.engine.graph import graph_of
from ductord.model.enums import CompletionPolicy, DigestMode, OnError, OnTimeout, RaceLosers, StepType
from ductord.model.manifest import Manifest, Step, decode, encode
from ductord.model.schemas import Schema
from ductord.model.specs import ApprovalSpec, DigestSpec, EventSetSpec, HumanLoopSpec, RaceSpec, Template, WaitSpec
from tests.language.documents import codes, definition, edge, step

WAITING = (StepType.WAIT, StepType.APPROVAL, StepType.HUMAN_LOOP, StepType.RACE, StepType.EVENT_SET, StepType.DIGEST)
REQUIREMENTS = [{"name": "stock", "event_name": "stock.reserved"}, {"name": "paid", "event_name": "paid"}]
SET = {"correlation_key": "TRIGGER.payload.order", "requirements": REQUIREMENTS}
TWICE = SET | {"requirements": [*REQUIREMENTS, REQUIREMENTS[0]]}
DIGEST = {"digest_key": "TRIGGER.payload.user", "window_ms": 60_000}
LEAST: dict[str, dict[str, Any]] = {
    "wait": {"wait": {"duration": "10s"}},
    "approval": {},
    "human_loop": {"human_loop": {"case_type": "refund"}},
    "race": {},
    "event_set": {"event_set": SET},
    "digest": {"digest": DIGEST},
}
"""The least that a step of each type says."""

MOST: dict[str, dict[str, Any]] = {
    "wait": {"event": {"event_name": "a.${{ VARS.kind }}", "correlation_key": "TRIGGER.payload.order"}, "timeout_ms": 5, "on_timeout": "skip"},
    "approval": {"timeout_ms": 5, "on_timeout": "approve", "required": 2, "groups": ["finance"], "allow_self": True},
    "human_loop": {"case_type": "refund", "awaiting_status": "closed", "timeout_ms": 5, "on_timeout": "continue"},
    "race": {"losers": "let_finish"},
    "event_set": {
        "correlation_key": "TRIGGER.payload.order",
        "requirements": [{"name": "paid", "event_name": "paid", "filter": "EVENT.payload.sum > 1"}, REQUIREMENTS[0]],
        "completion_policy": "quorum",
        "quorum": 1,
        "timeout_ms": 5,
        "on_timeout": "continue",
    },
    "digest": {
        "digest_key": "TRIGGER.payload.user",
        "mode": "backoff",
        "window_ms": 5,
        "look_back_ms": 9,
        "max_events": 3,
        "dedupe_key": "TRIGGER.payload.id",
    },
}  # fmt: skip
"""All that fits together."""


def of(kind: str, ref: str = "w", /, **fields: Any) -> dict[str, Any]:
    return {"ref": ref, "type": kind, **fields}


def one(**fields: Any) -> dict[str, Any]:
    """A set of one requirement."""
    return SET | {"requirements": [{"name": "n", "event_name": "e", **fields}]}


def raced(*steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The steps, with two that run before the last of them."""
    last = steps[-1]["ref"]
    return definition(step("a"), step("b"), *steps, edges=[edge("a", last), edge("b", last)], **fields)


def manifest_of(tree: dict[str, Any]) -> Manifest:
    result = compile_definition(tree)
    assert result.errors == ()
    assert result.manifest is not None
    return result.manifest


def step_of(kind: str, said: dict[str, Any] | None) -> Step:
    fields = {kind: said} if said is not None else {}
    return manifest_of(raced(of(kind, **fields))).steps[-1]


@pytest.mark.parametrize("kind", LEAST)
def test_each_type_compiles_with_the_least_and_with_the_most_it_can_say(kind: str) -> None:
    assert manifest_of(raced(of(kind, **LEAST[kind])))
    compiled = manifest_of(raced(of(kind, **{kind: MOST[kind]})))
    assert getattr(compiled.steps[-1], kind) is not None
    assert decode(encode(compiled)) == compiled


@pytest.mark.parametrize("kind", LEAST)
def test_only_manifests_with_such_steps_need_the_third_level(kind: str) -> None:
    """An older engine leaves their runs alone; all others keep their level and their hash."""
    assert manifest_of(raced(of(kind, **LEAST[kind]))).engine_level == 3
    assert manifest_of(definition(step("a"), step("b"), edges=[edge("a", "b")])).engine_level == 1


def test_manifests_of_older_releases_keep_their_hash() -> None:
    """Taken before steps could wait."""
    tree = definition(step("a", args={"x": 1}), step("b", run_if="TRIGGER.payload.go"), edges=[edge("a", "b")])
    assert manifest_hash(manifest_of(tree)) == "431cc8c2740de7a22408eed3f20bd33c85a31aee01b710a554574080a8cded79"


def test_the_defaults() -> None:
    assert step_of("approval", None).approval == ApprovalSpec()
    assert step_of("approval", {}).approval == ApprovalSpec()
    assert step_of("race", None).race == RaceSpec()
    assert step_of("wait", {"duration": "10s"}).wait == WaitSpec(duration=Template(tree="10s"))
    assert step_of("human_loop", {"case_type": "refund"}).human_loop == HumanLoopSpec(case_type="refund")
    event_set, digest = step_of("event_set", SET).event_set, step_of("digest", DIGEST).digest
    assert event_set is not None
    assert digest is not None
    assert event_set == EventSetSpec(correlation_key=event_set.correlation_key, requirements=event_set.requirements)
    assert digest == DigestSpec(digest_key=digest.digest_key, window_ms=60_000)


def test_what_is_said_arrives() -> None:
    approval, race = step_of("approval", MOST["approval"]).approval, step_of("race", MOST["race"]).race
    assert approval == ApprovalSpec(timeout_ms=5, on_timeout=OnTimeout.APPROVE, required=2, groups=("finance",))
    assert race == RaceSpec(losers=RaceLosers.LET_FINISH)
    event_set, digest = step_of("event_set", MOST["event_set"]).event_set, step_of("digest", MOST["digest"]).digest
    assert event_set is not None
    assert digest is not None
    assert (event_set.completion_policy, event_set.quorum) == (CompletionPolicy.QUORUM, 1)
    assert event_set.requirements[0].filter is not None
    assert event_set.requirements[0].filter.names == ("EVENT",)
    assert (digest.mode, digest.look_back_ms, digest.max_events) == (DigestMode.BACKOFF, 9, 3)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("wait", {"cron": "0 9 * * *"}),
        ("human_loop", {"case_type": "refund"}),
        ("approval", {"timeout_ms": 5}),
        ("digest", {"digest_key": "1", "mode": "timed", "cron": "0 9 * * *"}),
    ],
)
def test_a_default_that_is_written_out_is_the_same_manifest(kind: str, said: dict[str, Any]) -> None:
    defaults: dict[str, dict[str, Any]] = {
        "wait": {"timezone": "".join(["U", "TC"]), "on_timeout": "fail"},
        "human_loop": {"awaiting_status": "".join(["resol", "ved"])},
        "approval": {"required": 1, "groups": [], "allow_self": True, "on_timeout": "fail"},
        "digest": {"timezone": "".join(["U", "TC"])},
    }
    one, other = raced(of(kind, **{kind: said})), raced(of(kind, **{kind: said | defaults[kind]}))
    assert manifest_hash(manifest_of(one)) == manifest_hash(manifest_of(other))


def test_an_approval_with_a_rejected_edge_goes_on_after_a_rejection() -> None:
    """G4."""
    tree = definition(of("approval"), step("no"), edges=[edge("w", "no", "rejected")])
    assert manifest_of(tree).steps[0].on_error is OnError.CONTINUE


def test_what_a_wait_reads_is_loaded_for_it() -> None:
    """L3: keys, names, durations and conditions count as what the step reads to begin."""
    reading = [
        of("wait", "d", wait={"duration": "${{ STEPS.a.output.pause }}"}),
        of("wait", "t", wait={"timestamp": "${{ STEPS.a.output.at }}"}),
        of("wait", "u", wait={"until_expr": "STEPS.a.output.go"}),
        of("wait", "n", wait={"event": {"event_name": "${{ STEPS.a.output.name }}"}}),
        of("wait", "k", wait={"event": {"event_name": "x", "correlation_key": "STEPS.a.output.key"}}),
        of("event_set", "s", event_set={"correlation_key": "STEPS.a.output.key", "requirements": REQUIREMENTS}),
        of(
            "event_set",
            "e",
            event_set=SET | {"requirements": [{"name": "n", "event_name": "${{ STEPS.a.output.name }}"}]},
        ),
    ]
    manifest = manifest_of(definition(step("a"), *reading, edges=[edge("a", one["ref"]) for one in reading]))
    graph = graph_of(manifest)
    for one in reading:
        assert graph.start_reads[graph.index[one["ref"]]] == ("a",), one["ref"]
    digest = manifest_of(
        definition(
            step("a"),
            of("digest", digest={"digest_key": "STEPS.a.output.k", "window_ms": 1, "dedupe_key": "STEPS.a.output.d"}),
            edges=[edge("a", "w")],
        )
    )
    assert graph_of(digest).start_reads[1] == ("a",)


WRONG: list[tuple[str, dict[str, Any], tuple[str, str]]] = [
    ("wait", {}, ("MISSING_FIELD", "steps[2].wait")),
    ("wait", {"wait": {}}, ("MISSING_FIELD", "steps[2].wait")),
    ("wait", {"wait": {"timeout_ms": 5}}, ("MISSING_FIELD", "steps[2].wait")),
    ("wait", {"wait": {"duration": "5s", "cron": "* * * * *"}}, ("FIELDS_EXCLUSIVE", "steps[2].wait.cron")),
    ("wait", {"wait": {"duration": 5}}, ("WRONG_TYPE", "steps[2].wait.duration")),
    ("wait", {"wait": {"duration": "-5s"}}, ("WAIT_INVALID", "steps[2].wait.duration")),
    ("wait", {"wait": {"duration": "5"}}, ("WAIT_INVALID", "steps[2].wait.duration")),
    ("wait", {"wait": {"duration": "NaN"}}, ("WAIT_INVALID", "steps[2].wait.duration")),
    ("wait", {"wait": {"duration": "11000d"}}, ("WAIT_INVALID", "steps[2].wait.duration")),
    ("wait", {"wait": {"duration": "${{ 1 + }}"}}, ("EXPRESSION_SYNTAX", "steps[2].wait.duration")),
    ("wait", {"wait": {"duration": "${{ STEPS.w.output }}"}}, ("STEP_NOT_ANCESTOR", "steps[2].wait.duration")),
    ("wait", {"wait": {"timestamp": "2030-01-01T00:00:00"}}, ("WAIT_INVALID", "steps[2].wait.timestamp")),
    ("wait", {"wait": {"cron": "0 0 31 2 *"}}, ("CRON_INVALID", "steps[2].wait.cron")),
    ("wait", {"wait": {"cron": "@reboot"}}, ("CRON_INVALID", "steps[2].wait.cron")),
    ("wait", {"wait": {"cron": "* * * * *", "timezone": "Berlin"}}, ("UNKNOWN_TIME_ZONE", "steps[2].wait.timezone")),
    ("wait", {"wait": {"duration": "5s", "timezone": "UTC"}}, ("FIELD_NOT_APPLICABLE", "steps[2].wait.timezone")),
    ("wait", {"wait": {"until_expr": "1 + 1"}}, ("NOT_BOOLEAN", "steps[2].wait.until_expr")),
    ("wait", {"wait": {"until_expr": "EVENT.name == 'x'"}}, ("NAME_NOT_AVAILABLE", "steps[2].wait.until_expr")),
    ("wait", {"wait": {"event": {}}}, ("MISSING_FIELD", "steps[2].wait.event.event_name")),
    ("wait", {"wait": {"event": {"event_name": ""}}}, ("INVALID_LENGTH", "steps[2].wait.event.event_name")),
    ("wait", {"wait": {"event": {"event_name": "e" * 257}}}, ("INVALID_LENGTH", "steps[2].wait.event.event_name")),
    ("wait", {"wait": {"event": {"event_name": "x", "filter": "true"}}}, ("UNKNOWN_FIELD", "steps[2].wait.event.filter")),
    ("wait", {"wait": {"signal": "no name"}}, ("INVALID_NAME", "steps[2].wait.signal")),
    ("wait", {"wait": {"duration": "5s", "on_timeout": "approve"}}, ("UNKNOWN_VALUE", "steps[2].wait.on_timeout")),
    ("wait", {"wait": {"duration": "5s"}, "timeout_ms": 5}, ("FIELD_NOT_APPLICABLE", "steps[2].timeout_ms")),
    ("wait", {"wait": {"duration": "5s"}, "retry_max_attempts": 2}, ("FIELD_NOT_APPLICABLE", "steps[2].retry_max_attempts")),
    ("wait", {"wait": {"duration": "5s"}, "action": "core:echo"}, ("FIELD_NOT_APPLICABLE", "steps[2].action")),
    ("wait", {"wait": {"duration": "5s"}, "queue": "q"}, ("FIELD_NOT_APPLICABLE", "steps[2].queue")),
    ("wait", {"wait": {"duration": "5s"}, "race": {}}, ("FIELD_NOT_APPLICABLE", "steps[2].race")),
    ("action", {"action": "core:echo", "wait": {"duration": "5s"}}, ("FIELD_NOT_APPLICABLE", "steps[2].wait")),
    ("approval", {"approval": {"on_timeout": "continue"}}, ("UNKNOWN_VALUE", "steps[2].approval.on_timeout")),
    ("approval", {"approval": {"required": 0}}, ("OUT_OF_RANGE", "steps[2].approval.required")),
    ("approval", {"approval": {"timeout_ms": 0}}, ("OUT_OF_RANGE", "steps[2].approval.timeout_ms")),
    ("approval", {"approval": {"allow_self": "yes"}}, ("WRONG_TYPE", "steps[2].approval.allow_self")),
    ("human_loop", {}, ("MISSING_FIELD", "steps[2].human_loop")),
    ("human_loop", {"human_loop": {}}, ("MISSING_FIELD", "steps[2].human_loop.case_type")),
    ("race", {"race": {"losers": "shoot"}}, ("UNKNOWN_VALUE", "steps[2].race.losers")),
    ("race", {"join": "all"}, ("FIELD_NOT_APPLICABLE", "steps[2].join")),
    ("event_set", {}, ("MISSING_FIELD", "steps[2].event_set")),
    ("event_set", {"event_set": SET | {"requirements": []}}, ("INVALID_LENGTH", "steps[2].event_set.requirements")),
    ("event_set", {"event_set": {"requirements": REQUIREMENTS}}, ("MISSING_FIELD", "steps[2].event_set.correlation_key")),
    ("event_set", {"event_set": TWICE}, ("DUPLICATE_REQUIREMENT", "steps[2].event_set.requirements[2].name")),
    ("event_set", {"event_set": SET | {"completion_policy": "most"}}, ("UNKNOWN_VALUE", "steps[2].event_set.completion_policy")),
    ("event_set", {"event_set": SET | {"completion_policy": "quorum"}}, ("MISSING_FIELD", "steps[2].event_set.quorum")),
    ("event_set", {"event_set": SET | {"completion_policy": "quorum", "quorum": 3}}, ("OUT_OF_RANGE", "steps[2].event_set.quorum")),
    ("event_set", {"event_set": SET | {"completion_policy": "count"}}, ("MISSING_FIELD", "steps[2].event_set.count")),
    ("event_set", {"event_set": SET | {"completion_policy": "until_timeout"}}, ("MISSING_FIELD", "steps[2].event_set.timeout_ms")),
    ("event_set", {"event_set": SET | {"quorum": 1}}, ("FIELD_NOT_APPLICABLE", "steps[2].event_set.quorum")),
    ("event_set", {"event_set": SET | {"min": 1}}, ("FIELD_NOT_APPLICABLE", "steps[2].event_set.min")),
    ("event_set", {"event_set": one(filter="TRIGGER.payload.x")}, ("NAME_NOT_AVAILABLE", "steps[2].event_set.requirements[0].filter")),
    ("event_set", {"event_set": one(filter="EVENT.sum > 1")}, ("UNKNOWN_NAME", "steps[2].event_set.requirements[0].filter")),
    ("event_set", {"event_set": one(filter="1")}, ("NOT_BOOLEAN", "steps[2].event_set.requirements[0].filter")),
    ("event_set", {"event_set": one(filer="true")}, ("UNKNOWN_FIELD", "steps[2].event_set.requirements[0].filer")),
    ("digest", {}, ("MISSING_FIELD", "steps[2].digest")),
    ("digest", {"digest": {"digest_key": "1"}}, ("MISSING_FIELD", "steps[2].digest.window_ms")),
    ("digest", {"digest": DIGEST | {"mode": "backoff"}}, ("MISSING_FIELD", "steps[2].digest.look_back_ms")),
    ("digest", {"digest": {"digest_key": "1", "mode": "timed"}}, ("MISSING_FIELD", "steps[2].digest.cron")),
    ("digest", {"digest": DIGEST | {"cron": "* * * * *"}}, ("FIELD_NOT_APPLICABLE", "steps[2].digest.cron")),
    ("digest", {"digest": DIGEST | {"look_back_ms": 5}}, ("FIELD_NOT_APPLICABLE", "steps[2].digest.look_back_ms")),
    ("digest", {"digest": {"digest_key": "1", "mode": "timed", "cron": "61 * * * *"}}, ("CRON_INVALID", "steps[2].digest.cron")),
    ("digest", {"digest": DIGEST | {"max_events": 0}}, ("OUT_OF_RANGE", "steps[2].digest.max_events")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "fields", "found"), WRONG, ids=[f"{kind}-{n}" for n, (kind, _, _) in enumerate(WRONG)]
)
def test_what_is_refused_and_where(kind: str, fields: dict[str, Any], found: tuple[str, str]) -> None:
    """One violation each: what was written wrongly is not told a second time as missing."""
    assert codes(raced(of(kind, **fields))) == [found]


def test_a_race_needs_two_runners_g7() -> None:
    assert codes(definition(step("a"), of("race"), edges=[edge("a", "w")])) == [("RACE_TOO_FEW", "steps[1].ref")]
    twice = [edge("a", "w"), edge("a", "w", "done")]
    assert codes(definition(step("a"), of("race"), edges=twice)) == [("RACE_TOO_FEW", "steps[1].ref")]


def test_nothing_goes_on_beside_a_digest_e5() -> None:
    digest = of("digest", digest=DIGEST)
    beside = definition(step("a"), digest, step("b"), step("c"), edges=[edge("a", "w"), edge("a", "b"), edge("w", "c")])
    (found,) = compile_definition(beside).errors
    assert (found.code, found.path, found.step_ref) == ("DIGEST_NOT_ALONE", "steps[1].ref", "w")
    assert "`b`" in found.message
    assert codes(definition(digest, of("digest", "v", digest=DIGEST))) == [
        ("DIGEST_NOT_ALONE", "steps[0].ref"),
        ("DIGEST_NOT_ALONE", "steps[1].ref"),
    ]
    chain = definition(step("a"), digest, of("digest", "v", digest=DIGEST), edges=[edge("a", "w"), edge("w", "v")])
    assert codes(chain) == []


@pytest.mark.parametrize("kind", [kind.value for kind in WAITING if kind is not StepType.APPROVAL])
def test_only_approvals_have_decisions_l9(kind: str) -> None:
    tree = raced(of(kind, **LEAST[kind]))
    tree["steps"].append(step("z"))
    tree["edges"].append(edge("w", "z", "approved"))
    assert codes(tree) == [("APPROVAL_REQUIRED", "edges[2].type")]


@pytest.mark.parametrize("kind", ["wait", "approval", "human_loop", "event_set"])
def test_an_on_timeout_without_a_time_is_likely_a_slip(kind: str) -> None:
    said = (LEAST[kind].get(kind) or {}) | {"on_timeout": "skip"}
    assert codes(raced(of(kind, **{kind: said})), warnings=True) == [("TIMEOUT_UNUSED", f"steps[2].{kind}.on_timeout")]


def test_a_slip_in_a_name_is_told_with_what_was_meant() -> None:
    tree = raced(of("event_set", event_set=SET | {"requirements": [{"name": "n", "event_nam": "e"}]}))
    found = {violation.code: violation.message for violation in compile_definition(tree).errors}
    assert "did you mean `event_name`?" in found["UNKNOWN_FIELD"]
    tree = raced(of("wait", wait={"durations": "5s"}))
    assert "did you mean `duration`?" in compile_definition(tree).errors[0].message


@pytest.mark.parametrize("kind", MOST)
def test_files_carry_every_field(kind: str) -> None:
    """YAML and JSON: the same tree, the same hash (L1, YM-01)."""
    tree = raced(of(kind, **{kind: MOST[kind]}))
    read = read_document(export_yaml(tree))
    assert read.violations == ()
    assert read.definition == tree
    written = compile_definition(tree).canonical_definition
    assert written == tree
    assert manifest_hash(manifest_of(written)) == manifest_hash(manifest_of(tree))


def test_the_schema_knows_them() -> None:
    schema = Schema(json_schema())
    for kind in WAITING:
        good = {"type": "workflow_definition", "definition": raced(of(kind, **{kind: MOST[kind]}))}
        assert schema.faults(good) == ()
    for name, fields, (code, _) in WRONG:
        if code in ("UNKNOWN_FIELD", "UNKNOWN_VALUE", "WRONG_TYPE", "FIELDS_EXCLUSIVE") or (
            code == "MISSING_FIELD" and name == "wait"
        ):
            bad = {"type": "workflow_definition", "definition": raced(of(name, **fields))}
            assert schema.faults(bad), fields


def test_flowcharts_say_what_is_waited_for() -> None:
    steps = [
        of("wait", "d", wait={"duration": "1h"}),
        of("wait", "c", wait={"cron": "0 9 * * 1", "timezone": "Europe/Berlin"}),
        of("wait", "e", wait={"event": {"event_name": "paid"}}),
        of("wait", "s", wait={"signal": "customs"}),
        of("wait", "u", wait={"until_expr": "TRIGGER.payload.go"}),
        of("approval", "a"),
        of("human_loop", "h", human_loop={"case_type": "refund"}),
    ]
    chart = mermaid(manifest_of(definition(*steps)))
    for text in (
        "d<br/>wait 1h",
        "c<br/>wait until 0 9 * * 1 Europe/Berlin",
        "e<br/>wait for paid",
        "s<br/>wait for customs",
        "u<br/>wait until TRIGGER.payload.go",
        "a<br/>approval",
        "h<br/>human loop refund",
    ):
        assert f'["{text}"]' in chart, text


def test_a_wait_of_an_unsound_definition_is_no_manifest() -> None:
    tree = raced(of("event_set", event_set=SET | {"correlation_key": "1 +"}))
    result = compile_definition(tree)
    assert result.manifest is None
    assert [found.code for found in result.errors] == ["EXPRESSION_SYNTAX"]


def test_texts_are_a_steps_own() -> None:
    """`Step.texts` is what a tick loads: a result_expr is read when the step ends."""
    one = manifest_of(definition(of("wait", wait={"until_expr": "TRIGGER.payload.go"}, run_if="VARS.x == 1"))).steps[0]
    assert [text.names for text in one.texts()] == [("VARS",), ("TRIGGER",)]
    assert list(replace(one, run_if=None, wait=None).texts()) == []
