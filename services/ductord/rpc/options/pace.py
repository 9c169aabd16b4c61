"""Time (ruling A4 unless said otherwise), and how much at once."""

from pydantic import BaseModel, Field

from ductord.rpc.options.kinds import Count, Milliseconds


class Pace(BaseModel):
    """Options of intervals, patience and amounts."""

    lease_ms: Milliseconds = 15_000
    heartbeat_ms: Milliseconds = 5_000
    sweep_ms: Milliseconds = 5_000
    drain_ms: Milliseconds = 10_000
    cancel_grace_ms: Milliseconds = Field(
        default=30_000, description="how long attempts that were asked to stop may take (G5)"
    )
    poll_ms: Milliseconds = Field(default=1_000, description="how often a loop looks without being woken")
    poll_wait_max_ms: Milliseconds = Field(
        default=30_000, description="the longest that PollTasks waits for a first task"
    )
    liveness_ms: Milliseconds = Field(
        default=60_000, description="a loop that has not turned for so long is dead: /livez fails"
    )
    notify: bool = Field(default=True, description="send and hear NOTIFY; off: polling alone, the same results later")

    # How much at once
    coordinator_batch_size: Count = 500
    dispatch_batch_size: Count = 500
    worker_slots: Count = Field(default=500, description="how many attempts one worker runs at once")
    worker_queues: str = Field(default="default", description="the queues that the worker polls, comma-separated")
    max_calls: Count = Field(default=2_000, description="RPCs in flight in one process; more are refused as OVERLOADED")
