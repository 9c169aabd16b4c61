"""A stack, a shop's definitions and the command line, for the tests of what operators do."""

import json
import time
from collections.abc import Callable
from typing import Any

from tests.support.dev import invoke
from tests.support.stack import Stack

TENANT = "shop"
WORKFLOWS = {
    # waits for a packer whom nobody has: a run that stands still until somebody does something
    "parcel": """\
type: workflow_definition
definition:
  family_slug: parcel
  steps:
    - ref: charge
      type: action
      action: core:echo
      args: {payment: "p-${{ TRIGGER.payload.order }}", note: "${{ default(CONTEXT.note, '') }}"}
      compensation:
        on_failure: [{action: core:echo, args: {refund: "${{ OUTPUT.payment }}"}}]
        on_cancel: [{action: core:echo, args: {refund: "${{ OUTPUT.payment }}"}}]
        finally: [{action: core:echo, args: {closed: "${{ RUN.id }}"}}]
    - {ref: pack, type: action, action: shop:pack, queue: packers}
    - {ref: ship, type: action, action: core:echo, args: {of: "${{ STEPS.pack.output }}"}}
  edges:
    - {source_ref: charge, target_ref: pack, type: success}
    - {source_ref: pack, target_ref: ship, type: success}
""",
    # the truck breaks down once
    "delivery": """\
type: workflow_definition
definition:
  family_slug: delivery
  steps:
    - {ref: load, type: action, action: core:echo, args: {boxes: "${{ TRIGGER.payload.boxes }}"}}
    - {ref: drive, type: action, action: core:fail, args: {code: INVALID_ARGUMENT, message: no fuel, times: 1}}
    - {ref: unload, type: action, action: core:echo, args: {boxes: "${{ STEPS.load.output.boxes }}"}}
  edges:
    - {source_ref: load, target_ref: drive, type: success}
    - {source_ref: drive, target_ref: unload, type: success}
""",
    # waits for people and for the world
    "offer": """\
type: workflow_definition
definition:
  family_slug: offer
  steps:
    - {ref: manager, type: approval}
    - {ref: paper, type: human_loop, human_loop: {case_type: kyc}}
    - {ref: go, type: wait, wait: {signal: go}}
    - ref: money
      type: event_set
      event_set:
        correlation_key: "'o-' + string(TRIGGER.payload.order)"
        requirements:
          - {name: paid, event_name: order.paid, filter: "EVENT.payload.amount > 10"}
          - {name: sent, event_name: order.sent}
  edges: []
""",
    # started by an event; one of its triggers gives an input that the schema refuses
    "return": """\
type: workflow_definition
definition:
  family_slug: return
  input_schema: {type: object, required: [order]}
  triggers:
    - {id: parcel, type: event, patterns: [parcel.returned], filter: EVENT.payload.order > 0}
    - {id: broken, type: event, patterns: [parcel.returned], input: {}}
  steps:
    - {ref: check, type: approval}
  edges: []
""",
    # fans out: a page that is odd is damaged; one that is held waits for a worker whom nobody has
    "scan": """\
type: workflow_definition
definition:
  family_slug: scan
  steps:
    - ref: pages
      type: scatter
      scatter: {items_expr: TRIGGER.payload.pages, action: core:fail, args: {code: INVALID_ARGUMENT, message: damaged, times: "${{ ITEM }}"}}
    - {ref: all, type: gather, gather: {scatter_ref: pages}}
  edges:
    - {source_ref: pages, target_ref: all, type: success}
""",
    "volume": """\
type: workflow_definition
definition:
  family_slug: volume
  steps:
    - {ref: bind, type: action, action: core:echo, args: {of: "${{ TRIGGER.payload.item }}"}}
    - {ref: proof, type: subworkflow, run_if: TRIGGER.payload.item.proof, subworkflow: {workflow: {family_slug: proof}}}
  edges:
    - {source_ref: bind, target_ref: proof, type: success}
""",
    "proof": """\
type: workflow_definition
definition:
  family_slug: proof
  steps:
    - {ref: read, type: wait, wait: {signal: read}}
  edges: []
""",
    "library": """\
type: workflow_definition
definition:
  family_slug: library
  steps:
    - ref: volumes
      type: scatter
      scatter: {items_expr: TRIGGER.payload.volumes, mode: child_workflow, workflow: {family_slug: volume}}
  edges: []
""",
    # begin by themselves: once a year, twice a year, when somebody orders for more than ten
    "report": """\
type: workflow_definition
definition:
  family_slug: report
  schedule: {cron_expression: 0 3 1 1 *, timezone: Europe/Berlin}
  steps:
    - {ref: read, type: wait, wait: {signal: read}}
  edges: []
""",
    "audit": """\
type: workflow_definition
definition:
  family_slug: audit
  triggers:
    - {id: morning, type: schedule, schedule: {cron_expression: 0 6 1 1 *}}
    - {id: evening, type: schedule, schedule: {cron_expression: 0 18 1 1 *}}
  steps:
    - {ref: look, type: action, action: core:echo}
  edges: []
""",
    "welcome": """\
type: workflow_definition
definition:
  family_slug: welcome
  triggers:
    - {id: created, type: event, patterns: [order.created], filter: EVENT.payload.sum > 10}
  steps:
    - {ref: greet, type: action, action: core:echo, args: {to: "${{ TRIGGER.event.payload.name }}"}}
  edges: []
""",
    # an undo that cannot be done by a machine
    "stubborn": """\
type: workflow_definition
definition:
  family_slug: stubborn
  steps:
    - ref: charge
      type: action
      action: core:echo
      compensation:
        on_failure: [{action: core:fail, args: {code: INVALID_ARGUMENT, message: the bank is closed}}]
        on_cancel: []
    - {ref: pack, type: action, action: core:fail, args: {code: INVALID_ARGUMENT, message: no box}}
  edges:
    - {source_ref: charge, target_ref: pack, type: success}
""",
}


class Shop:
    """The command line of the shop's operator."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    def ductor(self, *arguments: str, input_: str | None = None) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        return invoke(*arguments, input_=input_, DUCTOR_TARGET=self.stack["edges"].target, DUCTOR_TENANT_ID=TENANT)

    def json(self, *arguments: str, code: int = 0) -> Any:
        """The JSON document of a command that ends with `code`."""
        done = self.ductor(*arguments, "--json")
        assert (done[0], done[2]) == (code, ""), done
        return json.loads(done[1])

    def start(self, workflow: str, **input_: object) -> str:
        """Start a run; its id."""
        code, output, errors = self.ductor("trigger", workflow, "--input", json.dumps(input_))
        assert (code, errors) == (0, "")
        return output.strip()

    def until(self, run_id: str, holds: Callable[[Any], bool]) -> Any:
        """The snapshot of a run as soon as it satisfies `holds`."""
        deadline = time.monotonic() + 120
        while True:
            found = self.json("run", "snapshot", run_id)["data"]
            if holds(found):
                return found
            assert time.monotonic() < deadline, found
            time.sleep(0.05)  # between two looks

    def waiting_for_a_packer(self, order: int) -> str:
        """A run of `parcel` whose goods are charged and stand to be packed."""
        run_id = self.start("parcel", order=order)
        self.until(run_id, lambda run: node(run, "pack")["status"] == "running")
        return run_id

    def ended(self, workflow: str, status: str, **input_: object) -> str:
        """A run that has ended so."""
        run_id = self.start(workflow, **input_)
        self.until(run_id, lambda run: bool(run["summary"]["status"] == status))
        return run_id


def node(run: Any, ref: str) -> Any:
    """A node of a snapshot."""
    return next(n for n in run["nodes"] if n["step_ref"] == ref)
