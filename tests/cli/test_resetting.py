"""`ductor run reset --dry-run`: which child runs a reset takes over, and which stay (C5, RR-01)."""

import pytest

from ductor.workflow.v1 import run_pb2
from ductor.workflow.v1 import workflow_run_control_service_pb2 as api
from ductord.cli.resetting import _children

_RUN = "00000000-0000-7000-8000-00000000000{}"


def test_children_of_a_preview_say_whose_they_will_be(capsys: pytest.CaptureFixture[str]) -> None:
    preview = api.ResetPreview(detached_children_count=102)
    preview.attached_children.add(step_ref="pay", run_id=_RUN.format(1), status=run_pb2.RUN_STATUS_COMPLETED)
    preview.detached_children.add(step_ref="s", item_index=4, run_id=_RUN.format(2), status=run_pb2.RUN_STATUS_RUNNING)
    _children(preview)
    out, err = capsys.readouterr()
    assert [line.split() for line in out.splitlines() if line.strip()][1:] == [
        ["pay[0]", _RUN.format(1), "completed", "becomes", "the", "new", "run's"],
        ["s[4]", _RUN.format(2), "running", "stays", "the", "source's"],
    ]
    assert "101 more that stay" in err


def test_a_preview_without_children_says_nothing_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    _children(api.ResetPreview())
    assert capsys.readouterr() == ("", "")
