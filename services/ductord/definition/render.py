"""Rows and verdicts → the messages of an answer."""

from collections.abc import Sequence
from typing import Final

from ductor.workflow.v1 import definition_pb2 as pb
from ductord.definition import convert
from ductord.definition.store import Draft, Entry, Version
from ductord.engine.export import export_yaml
from ductord.model.errors import Violation
from ductord.model.jsonvalue import JSON
from ductord.rpc.answers import timestamp, timestamp_or_none
from ductord.rpc.payloads import JSON_FORMAT

_STATUS: Final = {
    name: pb.DefinitionStatus.Value(f"DEFINITION_STATUS_{name.upper()}") for name in ("draft", "published", "archived")
}
_DETAIL_MAX_BYTES: Final = 5 << 18
"""1.25 MiB. A Struct may be several times as large as its JSON text; beyond this the twins are given whatever was asked for, so that a publish, which
answers two details, stays under the 3 MiB of a reply (L7)."""

_VIOLATIONS_MAX_BYTES: Final = 1 << 18


def draft(of: Draft, payload_format: int) -> pb.WorkflowDefinitionDetail:
    """A draft, whose id is the definition id."""
    detail = _document(of.document, payload_format)
    detail.id = detail.definition_id = of.definition_id
    detail.family_slug = of.family_slug
    detail.status = _STATUS["draft"]
    detail.version = of.version
    detail.draft_revision = of.draft_revision
    detail.create_time.CopyFrom(timestamp(of.create_time))
    detail.update_time.CopyFrom(timestamp(of.update_time))
    return detail


def version(of: Version, payload_format: int) -> pb.WorkflowDefinitionDetail:
    """A version, whose id is its own."""
    detail = _document(of.document, payload_format)
    detail.id = of.version_id
    detail.definition_id = of.definition_id
    detail.family_slug = of.family_slug
    detail.status = _STATUS[of.status]
    detail.version = of.version
    detail.draft_revision = of.draft_revision
    detail.manifest_hash = of.manifest_hash
    detail.create_time.CopyFrom(timestamp(of.publish_time))
    detail.update_time.CopyFrom(timestamp(of.archive_time or of.publish_time))
    detail.publish_time.CopyFrom(timestamp(of.publish_time))
    if of.archive_time is not None:
        detail.archive_time.CopyFrom(timestamp(of.archive_time))
    return detail


def draft_or_version(of: Draft | Version, payload_format: int) -> pb.WorkflowDefinitionDetail:
    """Whichever it is."""
    return draft(of, payload_format) if isinstance(of, Draft) else version(of, payload_format)


def export(of: Draft | Version) -> pb.WorkflowDefinitionExport:
    """The definition as a file: the same definition gives the same bytes."""
    return pb.WorkflowDefinitionExport(
        id=of.definition_id if isinstance(of, Draft) else of.version_id,
        family_slug=of.family_slug,
        version=of.version,
        yaml=export_yaml(of.document),
    )


def summary(of: Entry) -> pb.WorkflowDefinitionSummary:
    """An entry of a list."""
    return pb.WorkflowDefinitionSummary(
        id=of.id,
        family_slug=of.family_slug,
        title=of.title,
        description=of.description,
        tags=of.tags,
        status=_STATUS[of.status],
        version=of.version,
        draft_revision=of.draft_revision,
        step_count=of.step_count,
        edge_count=of.edge_count,
        definition_id=of.definition_id,
        manifest_hash=of.manifest_hash,
        create_time=timestamp(of.create_time),
        update_time=timestamp(of.update_time),
        publish_time=timestamp_or_none(of.publish_time),
        archive_time=timestamp_or_none(of.archive_time),
    )


def violations(of: Sequence[Violation]) -> list[pb.DefinitionViolation]:
    """What is wrong, or what to warn of; cut where it would crowd the reply (L7), and then the last one says so."""
    told: list[pb.DefinitionViolation] = []
    size = 0
    for violation in of:
        told.append(_violation(violation))
        size += told[-1].ByteSize()
        if size > _VIOLATIONS_MAX_BYTES and len(told) < len(of):
            more = len(of) - len(told)
            told.append(pb.DefinitionViolation(code="MORE_VIOLATIONS", message=f"{more:,} more are left out"))
            break
    return told


def _violation(of: Violation) -> pb.DefinitionViolation:
    return pb.DefinitionViolation(
        code=of.code, path=of.path, message=of.message, step_ref=of.step_ref, line=of.line, column=of.column
    )


def _document(document: JSON, payload_format: int) -> pb.WorkflowDefinitionDetail:
    detail = pb.WorkflowDefinitionDetail()
    convert.fill(detail, document, payload_format, max_bytes=_DETAIL_MAX_BYTES)
    if payload_format != JSON_FORMAT and detail.ByteSize() > _DETAIL_MAX_BYTES:
        detail.Clear()
        convert.fill(detail, document, JSON_FORMAT)
    return detail
