"""`ductor --help` and completion are immediate: nothing heavy is imported before a command runs."""

import subprocess
import sys

HEAVY = ("grpc", "google.protobuf", "asyncpg", "msgspec", "rich", "uvicorn", "cel_expr_python")


def test_help_imports_nothing_heavy() -> None:
    """The command line itself needs typer alone (which brings pydantic)."""
    script = (
        "import sys, contextlib, io\n"
        "from ductord.cli.commands import app\n"
        "for command in ('', 'workflow', 'run watch', 'run reset', 'step pause', 'dev'):\n"
        "    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "        app([*command.split(), '--help'])\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"


def test_every_command_says_what_it_does() -> None:
    """No command and no option without a help text."""
    from typer.main import get_command

    from ductord.cli.commands import app

    silent = []

    def look(command: object, path: str) -> None:
        for name, child in getattr(command, "commands", {}).items():
            look(child, f"{path} {name}")
        if not getattr(command, "help", None):
            silent.append(path)
        silent.extend(
            f"{path} {option.name}"
            for option in getattr(command, "params", [])
            if not getattr(option, "help", None) and option.name != "version"
        )

    look(get_command(app), "ductor")
    assert not silent
