"""From a judged definition to the manifest: defaults resolved, steps in Kahn order, edges by index (spec: Compiled plan).

Assembles what the passes found sound; it judges only the texts on its way. Nothing is read from a clock or from outside, so the same
definition gives the same manifest.
"""

from typing import TypeVar

from ductord.engine.compile import compensations, fanspecs, triggers, waitspecs
from ductord.engine.compile.findings import Findings, path_of
from ductord.engine.compile.network import Link, Network
from ductord.engine.compile.shape import Shaped
from ductord.engine.compile.texts import Texts
from ductord.engine.expressions import Site
from ductord.model.definition import Definition, StepDefinition
from ductord.model.enums import EdgeType, FailPolicy, Join, OnError, StepType, Tier
from ductord.model.manifest import FORMAT_VERSION, Checkpoint, Edge, Manifest, Step
from ductord.model.schemas import Schema, SchemaInvalid
from ductord.model.specs import ActionSpec, RetryPolicy, Template

T = TypeVar("T")

DEFAULT_MAX_LOST = 5
"""Ruling A4: the sixth loss fails the node."""
_HANDLED: frozenset[EdgeType] = frozenset({EdgeType.ERROR, EdgeType.REJECTED})


def assemble(definition: Definition, shaped: Shaped, network: Network, findings: Findings) -> Manifest | None:
    """The manifest; None when anything about the definition is wrong, found here or before."""
    variables = definition.variables or {}
    texts = Texts(findings, frozenset(network.index) | shaped.lost_refs, variables)
    builder = _Builder(definition, network, texts)
    steps = tuple(builder.step(position) for position in builder.positions)
    edges = tuple(builder.edge(link) for link in network.links)
    output = None
    if definition.output is not None:
        output = texts.template(definition.output, ("output",), lambda: frozenset(network.index))
    starting = triggers.compiled(definition, shaped, texts)
    _judge_variables(definition, texts, findings)
    _judge_input_schema(definition, findings)
    if findings.failed:
        return None
    return Manifest(
        format_version=FORMAT_VERSION,
        engine_level=5 if starting or texts.reads_origin else _engine_level(definition, steps),
        family_slug=definition.family_slug,
        title=definition.title or "",
        steps=steps,
        edges=edges,
        entrypoints=tuple(index for index, step in enumerate(steps) if not step.incoming),
        checkpoints=builder.checkpoints(),
        response_checkpoint=_response_checkpoint(definition),
        output=output,
        variables=variables,
        fail_policy=definition.fail_policy or FailPolicy.FAIL_FAST,
        run_timeout_ms=definition.run_timeout_ms,
        tier=definition.tier or Tier.STANDARD,
        auto_continue=bool(definition.auto_continue),
        manual_start=not definition.triggers or any(trigger.type == "manual" for trigger in definition.triggers),
        input_schema=definition.input_schema,
        triggers=starting,
    )


class _Builder:
    def __init__(self, definition: Definition, network: Network, texts: Texts) -> None:
        self._definition = definition
        self._network = network
        self._texts = texts
        kahn = network.order
        self.positions = kahn if not network.cyclic else list(range(len(network.steps)))
        self._raising = fanspecs.raising(network.steps)
        self._index = {position: index for index, position in enumerate(self.positions)}
        self._edge_index = {link.number: index for index, link in enumerate(network.links)}

    def step(self, position: int) -> Step:
        network = self._network
        written = network.steps[position]
        path = ("steps", network.numbers[position])
        outgoing = network.outgoing[position]

        def before() -> frozenset[str]:
            return network.ancestors(position)

        run_if = self._texts.condition(written.run_if, (*path, "run_if"), before)
        result = self._texts.condition(written.result_expr, (*path, "result_expr"), before, Site.RESULT)
        args = self._texts.template(written.args or {}, (*path, "args"), before)
        action = None
        if written.action is not None:
            action = ActionSpec(action=written.action, args=args or Template())
        specs = waitspecs.compiled(written, path, self._texts, before)
        fans = fanspecs.compiled(written, path, self._texts, before, self._raising)
        return Step(
            ref=written.ref,
            type=StepType(written.type) if written.type in {kind.value for kind in StepType} else StepType.ACTION,
            title=written.title or "",
            run_if=run_if,
            join=written.join or Join.ALL,
            on_error=written.on_error or _on_error(outgoing),
            result_expr=result,
            retry=_retry(written),
            timeout_ms=written.timeout_ms,
            total_timeout_ms=written.total_timeout_ms,
            queue_timeout_ms=written.queue_timeout_ms,
            heartbeat_timeout_ms=written.heartbeat_timeout_ms,
            max_lost=_or(written.max_lost, DEFAULT_MAX_LOST),
            queue=written.queue or "default",
            incoming=tuple(self._edge_index[link.number] for link in network.incoming[position]),
            outgoing=tuple(self._edge_index[link.number] for link in outgoing),
            action=action,
            compensation=compensations.compiled(written, (*path, "compensation"), self._texts, before),
            wait=specs.wait,
            approval=specs.approval,
            human_loop=specs.human_loop,
            race=specs.race,
            event_set=specs.event_set,
            digest=specs.digest,
            scatter=fans.scatter,
            gather=fans.gather,
            for_each=fans.for_each,
            dataflow=fans.dataflow,
            subworkflow=fans.subworkflow,
        )

    def edge(self, link: Link) -> Edge:
        network = self._network
        source = network.steps[link.source].ref

        def before() -> frozenset[str]:
            return network.ancestors(link.source) | {source}

        return Edge(
            source=self._index[link.source],
            target=self._index[link.target],
            type=link.edge.type,
            condition=self._texts.condition(link.edge.condition, ("edges", link.number, "condition"), before),
            choice_group=link.edge.choice_group,
            order=link.edge.order or 0,
            default=bool(link.edge.default),
        )

    def checkpoints(self) -> tuple[Checkpoint, ...]:
        network = self._network
        return tuple(
            Checkpoint(
                name=checkpoint.name,
                steps=tuple(dict.fromkeys(self._index[network.index[ref]] for ref in checkpoint.step_refs)),
            )
            for checkpoint in self._definition.checkpoints or ()
        )


def _engine_level(definition: Definition, steps: tuple[Step, ...]) -> int:
    """The lowest level of behaviour that runs the definition rightly."""
    if any(step.type in fanspecs.FANNING for step in steps):
        return 4
    if any(step.type in waitspecs.WAITING for step in steps):
        return 3
    return 2 if definition.auto_continue or any(step.compensation is not None for step in steps) else 1


def _on_error(outgoing: list[Link]) -> OnError:
    """Ruling G4: unset means continue where an error or a rejection has somewhere to go."""
    return OnError.CONTINUE if any(link.edge.type in _HANDLED for link in outgoing) else OnError.FAIL


def _retry(written: StepDefinition) -> RetryPolicy:
    """Ruling A1. The default ceiling is for what grows: it does not cut a constant back-off that is longer than it."""
    default = RetryPolicy()
    ceiling = max(default.max_backoff_ms, written.retry_backoff_ms or 0)
    return RetryPolicy(
        max_attempts=_or(written.retry_max_attempts, default.max_attempts),
        backoff_ms=_or(written.retry_backoff_ms, default.backoff_ms),
        coefficient=float(_or(written.retry_backoff_coefficient, default.coefficient)),
        max_backoff_ms=_or(written.retry_max_backoff_ms, ceiling),
        jitter=bool(written.retry_jitter),
        retry_on=tuple(written.retry_on or ()),
        non_retryable=tuple(written.non_retryable or ()),
    )


def _response_checkpoint(definition: Definition) -> str | None:
    """Ruling G9: the named one, or the only one."""
    if definition.response_checkpoint is not None:
        return definition.response_checkpoint
    checkpoints = definition.checkpoints or []
    return checkpoints[0].name if len(checkpoints) == 1 else None


def _judge_variables(definition: Definition, texts: Texts, findings: Findings) -> None:
    for name, value in (definition.variables or {}).items():
        texts.data(value, ("variables", name))
        if name not in texts.variables_read and not texts.reads_all_variables:
            findings.add(
                "UNUSED_VARIABLE", f"no expression reads VARS.{name}", ("variables", name), warning=True, on_key=True
            )


def _judge_input_schema(definition: Definition, findings: Findings) -> None:
    if definition.input_schema is None:
        return
    try:
        schema = Schema(definition.input_schema)
    except SchemaInvalid as invalid:
        path = ("input_schema", *path_of(invalid.path))
        findings.add("INVALID_INPUT_SCHEMA", f"input_schema is no JSON Schema: {invalid.message}", path)
    else:
        if schema.endless:
            message = "input_schema may judge one and the same value millions of times: let its parts refer to each other less"
            findings.add("INVALID_INPUT_SCHEMA", message, ("input_schema",))


def _or(value: T | None, default: T) -> T:
    return default if value is None else value
