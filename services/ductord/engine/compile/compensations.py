"""The compensation of steps (ruling C7): what it says judged, and its form in the manifest with every default resolved.

Its actions are judged as those of steps are. Their args may read what the step's own result may: OUTPUT, and in STEPS the step itself beside its
ancestors, since they run when the run has ended.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from ductord.engine.compile.arguments import judge_call
from ductord.engine.compile.findings import Findings
from ductord.engine.compile.texts import Reachable, Texts
from ductord.engine.expressions import Site
from ductord.engine.positions import Path
from ductord.engine.steps import SUPPORTED
from ductord.model.actions import ActionCatalog
from ductord.model.authored.compensation import CompensatingAction, Compensation
from ductord.model.definition import Definition, StepDefinition
from ductord.model.enums import CompensationBlock, FailurePolicy
from ductord.model.specs import INVERSE_RETRY, INVERSE_TIMEOUT_MS, InverseSpec, RetryPolicy, Template
from ductord.model.specs import Compensation as Compiled

MAX_COMPENSATING_ACTIONS: Final = 1_000
"""Of one definition: a run works off one after the other, and carries the list of them."""

_UNDOING: Final = {
    CompensationBlock.ON_FAILURE: "fails or times out",
    CompensationBlock.ON_CANCEL: "is cancelled",
}
"""The blocks that undo a step, and the end of a run after which each does."""


def judge_compensations(
    definition: Definition, numbers: Iterable[int], actions: ActionCatalog, findings: Findings
) -> None:
    """Report actions that nobody brings, args that their schemas refuse, and more actions than a run can work off; warn of what is likely not meant."""
    count = 0
    for number, step in zip(numbers, definition.steps, strict=True):
        if step.compensation is None or step.type not in SUPPORTED:
            continue
        path: Path = ("steps", number, "compensation")
        _judge(step, step.compensation, path, actions, findings)
        before, count = count, count + len(list(_actions(step.compensation)))
        if before <= MAX_COMPENSATING_ACTIONS < count:
            message = f"definition has more than {MAX_COMPENSATING_ACTIONS:,} compensating actions with those of step `{step.ref}`"
            findings.add("MAX_COMPENSATION_COUNT_EXCEEDED", message, path, on_key=True)


def _judge(step: StepDefinition, written: Compensation, path: Path, actions: ActionCatalog, findings: Findings) -> None:
    for block, at, action in _actions(written):
        here = (*path, block.value, at)
        judge_call(action.action, action.args, action.queue or step.queue, here, actions, findings)
        if action.retry_max_attempts == 1 and action.retry_backoff_ms:
            message = "`retry_backoff_ms` has no effect with `retry_max_attempts: 1`"
            findings.add("RETRY_UNUSED", message, (*here, "retry_backoff_ms"), warning=True, on_key=True)
    if not any(_actions(written)):
        message = f"the compensation of step `{step.ref}` has no action: nothing is undone and nothing runs last"
        findings.add("COMPENSATION_EMPTY", message, path, warning=True, on_key=True)
    else:
        _warn_of_one_side(step, written, path, findings)


def compiled(written: StepDefinition, path: Path, texts: Texts, before: Reachable) -> Compiled | None:
    """The manifest's form; None for a step without any such action. `before`: the refs of the step's ancestors."""
    policy = written.compensation
    if policy is None:
        return None

    def reachable() -> frozenset[str]:
        return before() | {written.ref}

    blocks: dict[CompensationBlock, list[InverseSpec]] = {block: [] for block in CompensationBlock}
    for block, at, action in _actions(policy):
        args = texts.template(action.args or {}, (*path, block.value, at, "args"), reachable, Site.RESULT)
        blocks[block].append(_inverse(action, args or Template(), written.queue))
    if not any(blocks.values()):
        return None
    return Compiled(
        on_failure=tuple(blocks[CompensationBlock.ON_FAILURE]),
        on_cancel=tuple(blocks[CompensationBlock.ON_CANCEL]),
        final=tuple(blocks[CompensationBlock.FINALLY]),
        failure_policy=policy.failure_policy or FailurePolicy.MANUAL_REPAIR,
    )


def _inverse(written: CompensatingAction, args: Template, queue: str | None) -> InverseSpec:
    """Only the number of attempts and the first pause can be written; a pause longer than the default ceiling is not cut by it."""
    default = INVERSE_RETRY
    backoff = default.backoff_ms if written.retry_backoff_ms is None else written.retry_backoff_ms
    retry = RetryPolicy(
        max_attempts=written.retry_max_attempts or default.max_attempts,
        backoff_ms=backoff,
        coefficient=default.coefficient,
        max_backoff_ms=max(default.max_backoff_ms, backoff),
    )
    return InverseSpec(
        action=written.action,
        args=args,
        retry=default if retry == default else retry,  # a default is left out of the manifest only as the same object
        timeout_ms=written.timeout_ms or INVERSE_TIMEOUT_MS,
        queue=written.queue or queue or "default",
    )


def _actions(policy: Compensation) -> Iterator[tuple[CompensationBlock, int, CompensatingAction]]:
    for block, written in (
        (CompensationBlock.ON_FAILURE, policy.on_failure),
        (CompensationBlock.ON_CANCEL, policy.on_cancel),
        (CompensationBlock.FINALLY, policy.final),
    ):
        for at, action in enumerate(written or ()):
            yield block, at, action


def _warn_of_one_side(step: StepDefinition, written: Compensation, path: Path, findings: Findings) -> None:
    """An author who undoes a step after one end of a run has likely forgotten the other; an empty list says that it is meant."""
    sides = {CompensationBlock.ON_FAILURE: written.on_failure, CompensationBlock.ON_CANCEL: written.on_cancel}
    for block, missing in sides.items():
        (other,) = sides.keys() - {block}
        if missing is None and sides[other]:
            message = (
                f"when the run {_UNDOING[block]}, what step `{step.ref}` did is not undone: `{other}` has actions and there is no `{block}`;"
                f" write `{block}: []` if that is meant"
            )
            findings.add("COMPENSATION_ONE_SIDED", message, (*path, other.value), warning=True, on_key=True)
