"""The birth of runs by runs, in memory: what the coordinator's commit would write as their start rows."""

from datetime import datetime

import orjson
from msgspec.structs import replace

from ductord.model.effects import StartRun
from tests.support.rows import Rows


def bear(source: Rows, born: StartRun, at: datetime) -> Rows:
    """The rows of a successor or a reset run, with the controls and signals that are handed on to it or told it again (C5, C6)."""
    reset = bool(born.reset_from_seq)
    overrides = source.controls[born.overrides_of].body.overrides if born.overrides_of else {}
    start = replace(
        source.start,
        run_id=born.run_id,
        create_time=at,
        context=source.start.context if reset else orjson.loads(born.context_json),
        continued_from_run_id="" if reset else source.start.run_id,
        inverses=born.inverses,
        reset_from_run_id=source.start.run_id if reset else "",
        reset_from_seq=born.reset_from_seq,
        overrides=overrides,
        preserved=born.preserved,
        root_run_id=born.run_id if reset else source.start.root_run_id,
        parent_run_id="" if reset else source.start.parent_run_id,
        nesting_depth=0 if reset else source.start.nesting_depth,
    )
    rows = Rows(source.manifest, source.programs, start, source.family)
    for control in source.forwarded(born.run_id):
        rows.controls[control.request_id] = control
    rows.outside.events = source.outside.events
    if reset:
        point = next(t.at for t in source.history if t.seq == born.reset_from_seq)
        for name, (signal, payload) in source.outside.signals.items():
            if name not in source.told_at or source.told_at[name] > point:
                rows.outside.tell(signal, payload)
    for name, run_id in source.moved.items():
        if run_id == born.run_id:
            rows.outside.tell(*source.outside.signals[name])
    return rows


def bear_all(family: dict[str, Rows], at: datetime) -> None:
    """Bear all whom runs of the family have given birth to and who are not there yet."""
    for source in list(family.values()):
        for born in source.born.values():
            if born.run_id not in family:
                bear(source, born, at)
