"""The definitions directory at the service's start (D5): a loop that loads it once, file by file, and then rests.

A loop because the database or the service may come later than this process: a turn that fails is done again. Readiness waits for it, so that
who triggers a workflow of the directory at once finds it.
"""

import logging
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ductor.workflow.v1.workflow_definition_service_pb2_grpc import WorkflowDefinitionServiceStub
from ductord.definition import loading
from ductord.model.errors import Refusal
from ductord.rpc.caller import checked_tenant
from ductord.rpc.config import ConfigurationRefused
from ductord.rpc.credentials import Sign
from ductord.rpc.host import Scope

if TYPE_CHECKING:
    from ductor.workflow.v1.workflow_definition_service_pb2_grpc import WorkflowDefinitionServiceAsyncStub as Stub

REASON: Final = "loaded at boot"

log = logging.getLogger("ductor.workflows")


class Boot:
    """The loading of one directory. `turn` is the loop's, `finished` the readiness check."""

    def __init__(self, folder: Path, tenant_id: str, stub: "Stub", sign: Sign) -> None:
        self._folder = folder
        self._tenant_id = tenant_id
        self._stub = stub
        self._sign = sign
        self._turns: deque[loading.Turn] | None = None
        self._done = False

    async def turn(self) -> float | None:
        """Load one file; go on at once while there are more."""
        if self._done:
            return None
        if self._turns is None:
            found = await loading.turns(self._folder, self._tenant_id, self._stub, reason=REASON, sign=self._sign)
            self._turns = deque(found)
        if not self._turns:
            self._done = True
            return None
        loaded = await self._turns[0]()
        self._turns.popleft()
        _tell(loaded)
        return 0

    async def finished(self) -> None:
        """Returns when every file was loaded or reported. Raises RuntimeError before."""
        if not self._done:
            raise RuntimeError("the workflows directory is still being loaded")


def register(scope: Scope) -> None:
    """Load `DUCTOR_WORKFLOWS_DIR` into `DUCTOR_WORKFLOWS_TENANT`, where a directory is configured. Raises `ConfigurationRefused`."""
    settings = scope.settings
    if not settings.workflows_dir:
        return
    folder = Path(settings.workflows_dir).expanduser()
    if not folder.is_dir():
        raise ConfigurationRefused(f"DUCTOR_WORKFLOWS_DIR={settings.workflows_dir} is not a directory")
    if not settings.workflows_tenant:
        raise ConfigurationRefused("DUCTOR_WORKFLOWS_DIR needs DUCTOR_WORKFLOWS_TENANT: the tenant to publish into")
    try:
        tenant_id = checked_tenant(settings.workflows_tenant)
    except Refusal:
        raise ConfigurationRefused("DUCTOR_WORKFLOWS_TENANT is 1 to 64 letters, digits, _ and -") from None
    channel, sign = scope.inside()
    boot = Boot(folder, tenant_id, WorkflowDefinitionServiceStub(channel), sign)
    scope.ready_when("workflows", boot.finished)
    scope.loop("workflows", boot.turn, interval_ms=settings.liveness_ms)


def _tell(loaded: loading.Loaded) -> None:
    of = f"{loaded.path}: {loaded.family_slug}"
    if loaded.overwrote_draft:
        log.warning("%s: its draft held unpublished edits, which the file replaced", of)
    match loaded.action:
        case "published":
            log.info("%s: published as version %d", of, loaded.version)
        case "unchanged":
            log.debug("%s: version %d is what the file says", of, loaded.version)
        case "archived":
            log.warning("%s: version %d is what the file says, and archived: left alone", of, loaded.version)
        case "failed":
            lines = "".join(
                f"\n  line {v.line or '?'}, column {v.column or '?'}: {v.code} {v.path}: {v.message}"
                for v in loaded.violations
            )
            log.error("%s: not loaded: %s%s", loaded.path, loaded.message, lines)
