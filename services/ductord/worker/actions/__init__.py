"""The built-in actions: this table is the table of contents. Their args' schemas, which publish and the worker both check, are in `model.actions`.

A new action is one file here, its line below and its schema there; a test holds them together.
"""

from collections.abc import Mapping

from ductord.worker.actions.echo import echo
from ductord.worker.actions.fail import fail
from ductord.worker.actions.http import HttpRequest
from ductord.worker.actions.noop import noop
from ductord.worker.actions.sleep import sleep
from ductord.worker.context import Action


def built_in(http: HttpRequest) -> Mapping[str, Action]:
    """Every built-in action by name."""
    return {
        "noop:noop": noop,
        "core:echo": echo,
        "core:sleep": sleep,
        "core:fail": fail,
        "http:request": http.run,
    }
