"""The rules about what stands together in a definition (rulings D4, G4, G6, G9, L9, A1, A3): edges and their sources, choice groups,
triggers, checkpoints, retry policies.

Judges words, not expressions. Each rule reports all its breaches; the numbers in paths are those of the text.
"""

from collections.abc import Iterable
from typing import Final

from ductord.engine.compile.findings import Findings
from ductord.engine.compile.network import Link, Network
from ductord.engine.compile.shape import Shaped
from ductord.engine.suggest import suggestion
from ductord.model.definition import Definition, StepDefinition
from ductord.model.enums import EdgeType, OnError, StepType

_BOOLEAN: Final = frozenset({EdgeType.TRUE, EdgeType.FALSE})
_DECISION: Final = frozenset({EdgeType.APPROVED, EdgeType.REJECTED})


def judge_rules(definition: Definition, shaped: Shaped, network: Network, findings: Findings) -> None:
    """Report every breach of a rule of the graph, and warn of what is likely a slip."""
    for position, step in enumerate(network.steps):
        path = ("steps", network.numbers[position])
        _judge_edge_types(step, path, network.outgoing[position], findings)
        _judge_choice_groups(network.outgoing[position], findings)
        _judge_retry(step, path, findings)
        if (
            len(network.steps) > 1
            and network.links
            and not network.incoming[position]
            and not network.outgoing[position]
        ):
            findings.add(
                "STEP_NOT_CONNECTED", f"no edge leads to or from step `{step.ref}`", (*path, "ref"), warning=True
            )
    _judge_triggers(definition, shaped, findings)
    _judge_checkpoints(definition, shaped, network, findings)


def _judge_edge_types(step: StepDefinition, path: tuple[str, int], links: list[Link], findings: Findings) -> None:
    types = {link.edge.type for link in links}
    if step.on_error is OnError.FAIL and EdgeType.ERROR in types:
        message = f"step `{step.ref}` says `on_error: fail` and has an error edge: leave one of them out"
        findings.add("ON_ERROR_CONFLICT", message, (*path, "on_error"))
    for link in links:
        edge_path = ("edges", link.number, "type")
        if link.edge.type in _BOOLEAN and step.result_expr is None:
            message = f"a {link.edge.type} edge needs a `result_expr` on step `{step.ref}`"
            findings.add("RESULT_EXPR_REQUIRED", message, edge_path)
        if link.edge.type in _DECISION and step.type != StepType.APPROVAL:
            message = f"an {link.edge.type} edge starts at an approval; step `{step.ref}` is of type `{step.type}`"
            findings.add("APPROVAL_REQUIRED", message, edge_path)
    if step.result_expr is not None and not types & _BOOLEAN:
        message = f"the result of step `{step.ref}` decides nothing: it has no true and no false edge"
        findings.add("RESULT_EXPR_UNUSED", message, (*path, "result_expr"), warning=True, on_key=True)


def _judge_choice_groups(links: list[Link], findings: Findings) -> None:
    groups: dict[str, list[Link]] = {}
    for link in links:
        if link.edge.choice_group is not None:
            groups.setdefault(link.edge.choice_group, []).append(link)
            continue
        for name in ("order", "default"):
            if getattr(link.edge, name) is not None:
                message = f"`{name}` says something inside a choice group only: name the `choice_group`"
                findings.add("CHOICE_GROUP_REQUIRED", message, ("edges", link.number, name), on_key=True)
    for name, members in groups.items():
        _judge_choice_group(name, members, findings)


def _judge_choice_group(name: str, members: list[Link], findings: Findings) -> None:
    kind = members[0].edge.type
    orders: dict[int, int] = {}
    fallback: int | None = None
    for link in members:
        path = ("edges", link.number)
        if link.edge.type is not kind:
            message = f"choice group `{name}` mixes {kind} and {link.edge.type} edges: only one kind can fire"
            findings.add("CHOICE_GROUP_MIXED", message, (*path, "type"))
        if link.edge.default:
            if fallback is not None:
                message = f"choice group `{name}` has two defaults, the first is edges[{fallback}]"
                findings.add("CHOICE_DEFAULT_CONFLICT", message, (*path, "default"))
            elif link.edge.condition is not None:
                message = f"the default of choice group `{name}` takes what no condition took: it has none itself"
                findings.add("CHOICE_DEFAULT_CONFLICT", message, (*path, "condition"), on_key=True)
            fallback = link.number if fallback is None else fallback
            continue
        if link.edge.condition is None:
            message = f"an edge of choice group `{name}` needs a `condition`, or `default: true`"
            findings.add("CHOICE_CONDITION_REQUIRED", message, path)
        if link.edge.order is not None:
            if link.edge.order in orders:
                message = f"`order: {link.edge.order}` is given twice in choice group `{name}`, first by edges[{orders[link.edge.order]}]"
                findings.add("CHOICE_ORDER_CONFLICT", message, (*path, "order"))
            orders.setdefault(link.edge.order, link.number)
    _warn_of_what_no_run_reaches(name, members, findings)


def _warn_of_what_no_run_reaches(name: str, members: list[Link], findings: Findings) -> None:
    ordered = sorted(members, key=lambda link: (bool(link.edge.default), link.edge.order or 0, link.number))
    always = next((at for at, link in enumerate(ordered) if (link.edge.condition or "").strip() == "true"), None)
    for link in ordered[always + 1 :] if always is not None else ():
        what = "default" if link.edge.default else "edge"
        message = f"this {what} of choice group `{name}` is never taken: an earlier condition is always true"
        findings.add("CHOICE_UNREACHABLE", message, ("edges", link.number), warning=True)


def _judge_retry(step: StepDefinition, path: tuple[str, int], findings: Findings) -> None:
    backoff = step.retry_backoff_ms or 0
    if step.retry_max_backoff_ms is not None and step.retry_max_backoff_ms < backoff:
        message = f"`retry_max_backoff_ms` cuts `retry_backoff_ms` to {step.retry_max_backoff_ms:,}"
        findings.add("BACKOFF_CUT", message, (*path, "retry_max_backoff_ms"), warning=True)
    if (step.retry_max_attempts or 1) == 1:
        for name in ("retry_backoff_ms", "retry_on", "non_retryable"):
            if getattr(step, name):
                message = f"`{name}` has no effect without `retry_max_attempts` of 2 and more"
                findings.add("RETRY_UNUSED", message, (*path, name), warning=True, on_key=True)
    both = sorted(set(step.retry_on or ()) & set(step.non_retryable or ()))
    if both:
        message = f"`{both[0]}` is both in `retry_on` and in `non_retryable`"
        findings.add("RETRY_CONFLICT", message, (*path, "non_retryable"))
    if step.timeout_ms is not None and step.total_timeout_ms is not None and step.total_timeout_ms < step.timeout_ms:
        message = "`total_timeout_ms` ends the step before `timeout_ms` ends an attempt"
        findings.add("TIMEOUT_UNUSED", message, (*path, "timeout_ms"), warning=True)


def _judge_triggers(definition: Definition, shaped: Shaped, findings: Findings) -> None:
    ids = [trigger.id for trigger in definition.triggers or ()]
    for number, earlier, name in _repeated(ids, shaped.numbers["triggers"]):
        message = f"trigger id `{name}` is given twice, first by triggers[{earlier}]"
        findings.add("DUPLICATE_TRIGGER_ID", message, ("triggers", number, "id"))


def _judge_checkpoints(definition: Definition, shaped: Shaped, network: Network, findings: Findings) -> None:
    checkpoints = definition.checkpoints or []
    names = [checkpoint.name for checkpoint in checkpoints]
    numbers = shaped.numbers["checkpoints"]
    for number, earlier, name in _repeated(names, numbers):
        message = f"checkpoint `{name}` is given twice, first by checkpoints[{earlier}]"
        findings.add("DUPLICATE_CHECKPOINT", message, ("checkpoints", number, "name"))
    for number, checkpoint in zip(numbers, checkpoints, strict=True):
        for at, ref in enumerate(checkpoint.step_refs):
            path = ("checkpoints", number, "step_refs", at)
            if ref not in network.index and ref not in shaped.lost_refs:
                findings.add("UNKNOWN_STEP_REF", f"no step is named `{ref}`{suggestion(ref, network.index)}", path)
        for at, earlier, ref in _repeated(checkpoint.step_refs, range(len(checkpoint.step_refs))):
            message = f"step `{ref}` is named twice, first at step_refs[{earlier}]"
            findings.add("DUPLICATE_STEP_REF", message, ("checkpoints", number, "step_refs", at), warning=True)
    answer = definition.response_checkpoint
    if answer is not None and answer not in names:
        message = f"no checkpoint is named `{answer}`{suggestion(answer, names)}"
        findings.add("UNKNOWN_CHECKPOINT", message, ("response_checkpoint",))
    if answer is None and len(set(names)) > 1:
        message = "with several checkpoints a trigger can wait for one only by its name: set `response_checkpoint`"
        findings.add("RESPONSE_CHECKPOINT_NOT_NAMED", message, ("checkpoints",), warning=True, on_key=True)


def _repeated(names: Iterable[str], numbers: Iterable[int]) -> Iterable[tuple[int, int, str]]:
    """`(number, number of the first, name)` of every name that came before."""
    first: dict[str, int] = {}
    for number, name in zip(numbers, names, strict=True):
        if name in first:
            yield number, first[name], name
        first.setdefault(name, number)
