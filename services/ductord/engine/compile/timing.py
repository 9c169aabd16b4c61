"""Timetables as steps and triggers write them: cron expressions and zones, judged (field cases TC-04, TC-05)."""

from ductord.engine import moments
from ductord.engine.compile.findings import Findings
from ductord.engine.positions import Path
from ductord.engine.suggest import suggestion


def judge_cron(cron: str, path: Path, findings: Findings, *, rule: str = "") -> None:
    """CRON_INVALID for one that cannot be read or never comes. `rule`: what goes behind the fault."""
    try:
        moments.cron(cron)
    except moments.MomentInvalid as invalid:
        findings.add("CRON_INVALID", f"`{cron[:64]}` {invalid}{rule}", path)


def judge_zone(zone: str | None, path: Path, findings: Findings) -> None:
    """UNKNOWN_TIME_ZONE."""
    if zone is not None and zone not in moments.zones():
        message = f"`{zone[:64]}` is no IANA time zone{suggestion(zone, moments.zones())}"
        findings.add("UNKNOWN_TIME_ZONE", message, path)
