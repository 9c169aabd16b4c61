"""CPU time and memory of the processes of a stack, and of Postgres with all its children."""

from collections.abc import Mapping

import psutil


def family(pid: int) -> list[psutil.Process]:
    """A process and all that it started."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def cpu_seconds(pids: Mapping[str, int]) -> dict[str, float]:
    """CPU seconds used so far by each process, with its children, living and gone."""
    used = {}
    for name, pid in pids.items():
        total = 0.0
        for process in family(pid):
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
        times = psutil.Process(pid).cpu_times()
        used[name] = total + times.children_user + times.children_system
    return used


def _share(process: psutil.Process) -> int:
    """Its memory, shared pages divided among those that share them; 0 for a backend that has just gone."""
    try:
        return int(process.memory_full_info().pss)
    except psutil.NoSuchProcess:
        return 0


def memory_mb(pids: Mapping[str, int]) -> dict[str, float]:
    """Resident memory by process in MB (of Postgres: private memory of all its processes, shared buffers counted once)."""
    memory = {}
    for name, pid in pids.items():
        if name == "postgres":
            memory[name] = sum(_share(process) for process in family(pid)) / 1e6
        else:
            memory[name] = psutil.Process(pid).memory_info().rss / 1e6
    return memory
