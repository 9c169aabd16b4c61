"""absurd, measured as it is quickest: tasks are spawned with no worker up, then worker processes drain them; a step is `ctx.step`, a checkpoint of the worker.

Runs in an environment of its own (requirements-absurd.txt) against the server whose address it is given; `python -m bench.peers` starts it. The schema is the
one that `absurdctl` of the same release carries. Prints one JSON line per figure. Times are the database's.
"""

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time

import absurdctl
import psutil
import psycopg
from absurd_sdk import Absurd

QUEUE = "bench"


def _app(dsn: str) -> Absurd:
    app = Absurd(dsn, queue_name=QUEUE)

    @app.register_task(name="chain")
    def chain(params, ctx):
        for number in range(params["steps"]):
            ctx.step(f"s{number}", lambda number=number: {"ok": number})
        return {}

    return app


def _fresh(dsn: str) -> psycopg.Connection:
    connection = psycopg.connect(dsn, autocommit=True)
    connection.execute("drop schema if exists absurd cascade")
    connection.execute(absurdctl.BUNDLED_SCHEMA_SQL)
    _app(dsn).create_queue(QUEUE)
    return connection


class _Workers:
    def __init__(self, dsn: str, count: int) -> None:
        command = [sys.executable, __file__, "worker", "--dsn", dsn]
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(count)
        ]
        for process in self._processes:
            assert process.stdout.readline().strip() == "ready"

    def stop(self) -> dict[str, float]:
        used = {"cpu_s": 0.0, "memory_mb": 0.0}
        for process in self._processes:
            stats = psutil.Process(process.pid)
            times = stats.cpu_times()
            used["cpu_s"] += times.user + times.system
            used["memory_mb"] += stats.memory_info().rss / 1e6
            process.kill()
            process.wait()
        return used


def worker(arguments: argparse.Namespace) -> None:
    """Work until killed."""
    app = _app(arguments.dsn)
    print("ready", flush=True)
    app.start_worker(concurrency=1, batch_size=20, poll_interval=0.02)


def throughput(arguments: argparse.Namespace) -> None:
    """Tasks per second from the first start to the last end."""
    db = _fresh(arguments.dsn)

    def spawn(count: int) -> None:
        app = _app(arguments.dsn)
        for _ in range(count):
            app.spawn("chain", {"steps": arguments.steps}, queue=QUEUE)

    threads = [threading.Thread(target=spawn, args=(arguments.count // 4,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wanted = arguments.count // 4 * 4
    db.execute("vacuum analyze")
    db.execute("checkpoint")
    workers = _Workers(arguments.dsn, arguments.processes)
    deadline = time.monotonic() + 180
    while db.execute(f"select count(*) from absurd.r_{QUEUE} where state = 'completed'").fetchone()[0] < wanted:
        if time.monotonic() > deadline:
            raise SystemExit("absurd did not finish")
        time.sleep(0.25)
    seconds = float(
        db.execute(f"select extract(epoch from max(completed_at) - min(started_at)) from absurd.r_{QUEUE}").fetchone()[
            0
        ]
    )
    rows = db.execute(f"select count(*) from absurd.c_{QUEUE}").fetchone()[0]
    assert rows == wanted * arguments.steps, "every step is a row"
    used = workers.stop()
    print(
        json.dumps(
            {
                "what": "throughput",
                "steps": arguments.steps,
                "processes": arguments.processes,
                "runs": wanted,
                "runs_per_s": round(wanted / seconds, 1),
                "steps_per_s": round(rows / seconds, 1),
                "cpu_us_per_step": round(used["cpu_s"] / rows * 1e6),
                "memory_mb": round(used["memory_mb"]),
            }
        )
    )


def latency(arguments: argparse.Namespace) -> None:
    """One task at a time, from before the spawn to its end in the database."""
    db = _fresh(arguments.dsn)
    workers, app, times = _Workers(arguments.dsn, 1), _app(arguments.dsn), []
    ended = f"select extract(epoch from completed_at) from absurd.r_{QUEUE} where task_id = %s and state = 'completed'"
    for number in range(arguments.count + 10):
        begin = time.time()
        task_id = app.spawn("chain", {"steps": arguments.steps}, queue=QUEUE)["task_id"]
        while not (row := db.execute(ended, (task_id,)).fetchone()):
            time.sleep(0.002)
        if number >= 10:
            times.append((float(row[0]) - begin) * 1000)
    workers.stop()
    times.sort()
    p50, p99 = statistics.median(times), times[int(len(times) * 0.99)]
    print(json.dumps({"what": "latency", "steps": arguments.steps, "p50": round(p50, 2), "p99": round(p99, 2)}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["worker", "throughput", "latency"])
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    {"worker": worker, "throughput": throughput, "latency": latency}[given.what](given)
