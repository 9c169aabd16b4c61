"""What a decision may turn out to need beside its inbox, by name: the keys of `Missing.needs` and of `Inbox.given` (each says what its value is)."""

from typing import Final

import msgspec


class WorkflowNeed(msgspec.Struct, frozen=True):
    """The version that children of this family run: `model.fan.Workflow`. `version` 0: the newest."""

    family_slug: str
    version: int


class PageNeed(msgspec.Struct, frozen=True):
    """A page of a frozen collection: a list of at most `PAGE` values. `attempt`: `Fan.pages`; `number` counts from 0."""

    step_ref: str
    attempt: int
    number: int


class ItemsNeed(msgspec.Struct, frozen=True):
    """Of a node's inline children those that have begun and not succeeded: a tuple of `model.fan.ItemRow` in order of index. `expected`: how many children
    it has."""

    step_ref: str
    expected: int


class KinNeed(msgspec.Struct, frozen=True):
    """A node's child runs as they stand now, the latest per index: a tuple of `model.fan.Kin` in order of index. `since`: those of this attempt of the node
    and of later ones. `run_id`: whose node; empty: this run's, else the source of a reset, of which there are none while it is open (C5)."""

    step_ref: str
    since: int = 0
    run_id: str = ""


class GatheredNeed(msgspec.Struct, frozen=True):
    """What a node's children came to: `model.fan.Gathered`. `runs`: they are runs. `max_bytes`: of their outputs together, beyond which only the size is
    told."""

    step_ref: str
    expected: int
    runs: bool
    max_bytes: int


class Apart(msgspec.Struct, frozen=True):
    """Room: the decision evaluates much, and shall be made where it keeps nobody waiting. Its value is True."""


APART: Final = Apart()

Need = WorkflowNeed | PageNeed | ItemsNeed | KinNeed | GatheredNeed | Apart
