"""DBOS for Python, measured as it is quickest: workflows are queued with no worker up, then worker processes drain them; a step is a function of the process
that holds the workflow.

Runs in an environment of its own (requirements-dbos.txt) against the server whose address it is given; `python -m bench.peers` starts it. Prints one JSON line
per figure. Throughput is by the database's clock.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time

import psutil
import psycopg
from dbos import DBOS, DBOSClient

QUEUE, VERSION, THREADS = "bench", "v1", 4


def _url(dsn: str) -> str:
    return dsn.replace("postgresql://", "postgresql+psycopg://")


def _launch(dsn: str):
    DBOS(
        config={
            "name": "bench",
            "system_database_url": _url(dsn),
            "application_version": VERSION,
            "log_level": "ERROR",
            "run_admin_server": False,
            "sys_db_pool_size": 20,
            "executor_id": f"executor-{os.getpid()}",
            "max_executor_threads": THREADS + 8,
            "use_listen_notify": True,
        }
    )

    @DBOS.step()
    def step(number):
        return {"ok": number}

    @DBOS.workflow(name="chain")
    def chain(steps):
        for number in range(steps):
            step(number)
        return {}

    DBOS.launch()
    DBOS.register_queue(QUEUE, worker_concurrency=THREADS, polling_interval_sec=0.02)
    return chain


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
    _launch(arguments.dsn)
    print("ready", flush=True)
    threading.Event().wait()


def throughput(arguments: argparse.Namespace) -> None:
    """Workflows per second from the first start to the last end."""
    _Workers(arguments.dsn, 1).stop()  # makes the schema and the queue
    db = psycopg.connect(arguments.dsn, autocommit=True)
    db.execute("truncate dbos.workflow_status cascade")
    client = DBOSClient(system_database_url=_url(arguments.dsn), system_database_pool_size=16, application_name="bench")
    options = {"queue_name": QUEUE, "workflow_name": "chain", "app_version": VERSION}

    def enqueue(count: int) -> None:
        for _ in range(count):
            client.enqueue(options, arguments.steps)

    threads = [threading.Thread(target=enqueue, args=(arguments.count // 8,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wanted = arguments.count // 8 * 8
    db.execute("vacuum analyze")
    db.execute("checkpoint")
    workers = _Workers(arguments.dsn, arguments.processes)
    deadline = time.monotonic() + 180
    while db.execute("select count(*) from dbos.workflow_status where status = 'SUCCESS'").fetchone()[0] < wanted:
        if time.monotonic() > deadline:
            raise SystemExit("DBOS did not finish")
        time.sleep(0.25)
    seconds = float(
        db.execute(
            "select (max(completed_at) - min(started_at_epoch_ms)) / 1000.0 from dbos.workflow_status"
        ).fetchone()[0]
    )
    rows = db.execute("select count(*) from dbos.operation_outputs").fetchone()[0]
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
        ),
        flush=True,
    )
    os._exit(0)


def latency(arguments: argparse.Namespace) -> None:
    """One workflow at a time, started and run in this very process: the quickest that there is."""
    chain, times = _launch(arguments.dsn), []
    for number in range(arguments.count + 10):
        begin = time.perf_counter()
        DBOS.start_workflow(chain, arguments.steps).get_result()
        if number >= 10:
            times.append((time.perf_counter() - begin) * 1000)
    times.sort()
    p50, p99 = statistics.median(times), times[int(len(times) * 0.99)]
    print(
        json.dumps({"what": "latency", "steps": arguments.steps, "p50": round(p50, 2), "p99": round(p99, 2)}),
        flush=True,
    )
    os._exit(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["worker", "throughput", "latency"])
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    {"worker": worker, "throughput": throughput, "latency": latency}[given.what](given)
