"""Compensation: what is registered, what an end of the run owes, and working it off (ruling C7).

An action that succeeded is registered, in the commit that records it; the run's end plans what is owed, and from then on one inverse or final action
runs after the other, on an axis of its own: the status of the run and its nodes stay as they are. What is planned and why is `planning`, what becomes of an
entry is `unwinding`; both change the run by the ledger's events alone.
"""

from ductord.engine.saga.registering import carried, doubt, late, register
from ductord.engine.saga.unwinding import advance, judge

__all__ = ["advance", "carried", "doubt", "judge", "late", "register"]
