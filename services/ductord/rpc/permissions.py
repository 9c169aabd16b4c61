"""Who may call what (ruling N1): the scope that each RPC of the contract asks for. The only table of it.

A scope is the name of an action; none implies another. A test holds the table against the contract, so that no RPC can be added without a line here: one that
has none is refused to everybody.
"""

from typing import Final

from ductord.model.keys import (
    ADMIN,
    DEFINITION_READ,
    DEFINITION_WRITE,
    EVENTS_PUBLISH,
    RUN_WRITE,
    TASKS,
    WORKFLOW_READ,
    WORKFLOW_WRITE,
)

_BY_SERVICE: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "WorkflowDefinitionService": {
        DEFINITION_READ: (
            "GetWorkflowDefinition",
            "ListWorkflowDefinitions",
            "ValidateWorkflowDefinition",
            "ExportWorkflowDefinition",
            "ListWorkflowEnvOverrides",
        ),
        DEFINITION_WRITE: (
            "CreateWorkflowDefinition",
            "UpdateWorkflowDraft",
            "DeleteWorkflowDraft",
            "PublishWorkflowDefinition",
            "ArchiveWorkflowDefinition",
            "DuplicateWorkflowDefinition",
            "UpsertWorkflowEnvOverride",
            "DeleteWorkflowEnvOverride",
        ),
    },
    "WorkflowTriggerService": {
        DEFINITION_READ: ("ListEventTriggers",),
        WORKFLOW_WRITE: ("TriggerWorkflow", "BatchTriggerWorkflow"),
    },
    "ScheduleService": {
        WORKFLOW_READ: ("ListSchedules", "GetSchedule", "PreviewSchedule", "ListScheduleFires"),
        WORKFLOW_WRITE: ("PauseSchedule", "ResumeSchedule", "TriggerScheduleNow", "BackfillSchedule"),
    },
    "WorkflowRunControlService": {
        WORKFLOW_READ: (
            "GetRunSnapshot",
            "ListRunAttempts",
            "ListResetTargets",
            "PreviewReset",
            "GetOperation",
            "WaitOperation",
        ),
        RUN_WRITE: (
            "PauseRun",
            "ResumeRun",
            "CancelRun",
            "TerminateRun",
            "RedriveRun",
            "ContinueAsNewRun",
            "PauseNode",
            "ResumeNode",
            "ResetNode",
            "UpdateNodeRetryPolicy",
            "UpdateNodeTimeout",
            "ResolveRepair",
            "ResetRun",
        ),
    },
    "WorkflowSignalService": {
        WORKFLOW_READ: ("ExplainWorkflowEventSetMatch", "ListWaitReceipts"),
        RUN_WRITE: ("ApproveStep", "RejectStep", "ResolveInteraction"),
        EVENTS_PUBLISH: ("PublishEvent",),
    },
    "WorkflowService": {
        WORKFLOW_READ: (
            "ListRuns",
            "GetRun",
            "ListRunSteps",
            "GetRunStep",
            "WatchRun",
            "GetRunTimeline",
            "ListRunEvents",
            "GetRunAudit",
            "ListAudit",
            "ListCompensations",
            "ExportRun",
        ),
    },
    "TaskService": {TASKS: ("PollTasks", "CompleteTasks", "HeartbeatTasks", "DescribeQueues")},
    "AdminService": {
        ADMIN: (
            "GetReleasePolicy",
            "SetReleasePolicy",
            "CreateApiKey",
            "GetApiKey",
            "ListApiKeys",
            "RotateApiKey",
            "RevokeApiKey",
        ),
    },
}

PERMISSIONS: Final[dict[str, str]] = {
    f"ductor.workflow.v1.{service}/{method}": scope
    for service, scopes in _BY_SERVICE.items()
    for scope, methods in scopes.items()
    for method in methods
}
"""Full name of an RPC, as `ductor.workflow.v1.WorkflowService/GetRun` → the scope that it asks for."""
