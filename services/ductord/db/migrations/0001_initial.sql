-- The first schema. Words: definition, version, run, node, attempt, task, timer, wake-up, transition (docs/semantics.md).
-- Every table leads with tenant_id; no sequence and no key across tenants, so that tables can be distributed by tenant later.
-- Payload columns are `json`: the text is kept exactly as it was accepted (int64 stays int64). `jsonb` is for what SQL looks into.

-- The one clock (a test replaces this function). STABLE, so that `due_time <= eec_now()` can use an index.
create function eec_now() returns timestamptz language sql stable parallel safe as
$$ select statement_timestamp() $$;

-- A hint, never a guarantee: everything completes by polling alone. `ductor.notify = off` switches it off per connection.
create function eec_notify(channel text) returns void language sql volatile as
$$ select pg_notify(channel, '') where current_setting('ductor.notify', true) is distinct from 'off' $$;

-- 64 bits of SHA-256 over a namespaced id: two runs do not share a lock by accident (field case IL-06).
create function eec_run_lock_key(run_id uuid) returns bigint language sql immutable parallel safe as
$$ select ('x' || left(encode(sha256(convert_to('ductor.run:' || run_id::text, 'UTF8')), 'hex'), 16))::bit(64)::bigint $$;

-- Definitions ---------------------------------------------------------------------------------------------------------

create table eec_workflow_definition (
    tenant_id       text not null check (tenant_id ~ '^[A-Za-z0-9_-]{1,64}$'),
    definition_id   uuid not null,                    -- names the draft and, for good, the family (D1)
    family_slug     text not null,
    latest_version  int  not null default 0,          -- highest number given so far; versions have no gaps (D2)
    last_revision   int  not null default 0,          -- of the draft that was deleted last: a reopened one goes on from there
    create_time     timestamptz not null default eec_now(),
    primary key (tenant_id, definition_id),
    unique (tenant_id, family_slug)
);

create table eec_workflow_draft (
    tenant_id       text not null,
    definition_id   uuid not null,
    draft_revision  int  not null default 1,
    title           text not null default '',
    description     text not null default '',
    tags            text[] not null default '{}',
    document        json not null,                    -- the definition as authored (normalised JSON model)
    create_time     timestamptz not null default eec_now(),
    update_time     timestamptz not null default eec_now(),
    primary key (tenant_id, definition_id),
    foreign key (tenant_id, definition_id) references eec_workflow_definition
);
create index eec_workflow_draft_listing on eec_workflow_draft (tenant_id, create_time, definition_id);

create table eec_workflow_version (
    tenant_id       text not null,
    version_id      uuid not null,
    definition_id   uuid not null,
    version         int  not null,
    status          text not null default 'published' check (status in ('published', 'archived')),
    title           text not null default '',
    description     text not null default '',
    tags            text[] not null default '{}',
    document        json not null,
    manifest        json not null,
    manifest_hash   text not null,
    format_version  int  not null,
    engine_level    int  not null,
    draft_revision  int  not null,                    -- the revision that was published
    publish_time    timestamptz not null default eec_now(),
    archive_time    timestamptz,
    primary key (tenant_id, version_id),
    unique (tenant_id, definition_id, version),
    foreign key (tenant_id, definition_id) references eec_workflow_definition
);
create index eec_workflow_version_listing on eec_workflow_version (tenant_id, publish_time, version_id);

create table eec_workflow_audit (
    tenant_id       text not null,
    audit_id        uuid not null,
    at              timestamptz not null default eec_now(),
    actor           text not null,
    action          text not null,                    -- publish, archive, delete_draft …
    target          text not null,                    -- kind:id
    reason          text not null default '',
    request_id      text not null default '',
    detail          jsonb not null default '{}',
    primary key (tenant_id, audit_id)
);
create index eec_workflow_audit_target on eec_workflow_audit (tenant_id, target, at);

-- Runs ----------------------------------------------------------------------------------------------------------------

-- The immutable birth of a run, written by trigger (or the coordinator for children). No run row yet means `pending`.
create table eec_workflow_run_start (
    tenant_id           text not null,
    run_id              uuid not null,
    definition_id       uuid not null,
    version_id          uuid not null,
    version             int  not null,
    family_slug         text not null,
    given_definition_id uuid not null,                -- the id as the caller gave it: part of the idempotency key (T1)
    idempotency_key     text,
    request_hash        text not null default '',     -- of input, subject and labels: the same key with another is a mismatch
    subject_type        text not null default '',
    subject_id          text not null default '',
    labels              jsonb not null default '{}',
    input               json not null default '{}',
    tier                text not null default 'standard' check (tier in ('critical', 'standard', 'bulk')),
    traceparent         text not null default '',
    root_run_id         uuid not null,
    parent_run_id       uuid,
    journey_id          uuid not null,
    nesting_depth       int not null default 0,
    create_time         timestamptz not null default eec_now(),
    primary key (tenant_id, run_id)
);
create unique index eec_workflow_run_start_idempotency on eec_workflow_run_start (tenant_id, given_definition_id, idempotency_key)
    where idempotency_key is not null;
create index eec_workflow_run_start_listing on eec_workflow_run_start (tenant_id, create_time, run_id);
create index eec_workflow_run_start_family on eec_workflow_run_start (tenant_id, family_slug, create_time, run_id);
create index eec_workflow_run_start_subject on eec_workflow_run_start (tenant_id, subject_type, subject_id, create_time)
    where subject_id <> '';

-- One row per label of a run, to find runs by, newest first. Not a GIN index on `labels`: `@>` is not leakproof, so row-level security keeps every service
-- from using one (measured: 15 ms and growing with the tenant, against 0.3 ms).
create table eec_workflow_run_label (
    tenant_id       text not null,
    label           text not null,                    -- key:id
    create_time     timestamptz not null,
    run_id          uuid not null,
    primary key (tenant_id, label, create_time, run_id)
);

-- The state of a run: written by the coordinator alone, guarded by record_version (= number of transitions applied).
create table eec_workflow_run (
    tenant_id       text not null,
    run_id          uuid not null,
    status          text not null check (status in
                    ('running', 'paused', 'completed', 'failed', 'cancelled', 'timed_out', 'terminated', 'merged')),
    record_version  int  not null,
    version_id      uuid not null,
    format_version  int  not null,
    engine_level    int  not null,
    current_step    text not null default '',
    node_states     jsonb not null default '{}',      -- step ref → compact node; pending nodes are left out
    edge_states     text not null default '',         -- one character per manifest edge (G1)
    run_state       jsonb not null default '{}',      -- what else the run value holds: stop, checkpoints, faults, context
    has_errors      boolean not null default false,
    error_code      text not null default '',
    error_message   text not null default '',
    result          json,                             -- value of the definition's output expression
    result_refs     jsonb,                            -- or: leaf step ref → attempt whose row holds the output
    start_time      timestamptz not null,
    update_time     timestamptz not null,
    end_time        timestamptz,
    primary key (tenant_id, run_id)
) with (fillfactor = 60);
-- update_time is deliberately in no index: ticks of an open run stay heap-only updates.
create index eec_workflow_run_open on eec_workflow_run (tenant_id, run_id) where end_time is null;
create index eec_workflow_run_errors on eec_workflow_run (tenant_id, run_id) where has_errors;
create index eec_workflow_run_rare on eec_workflow_run (tenant_id, status, run_id) where status not in ('running', 'completed');

-- The history: one row per tick that changed something. Folding the events rebuilds the run.
create table eec_workflow_transition (
    tenant_id       text not null,
    run_id          uuid not null,
    seq             int  not null,
    at              timestamptz not null,
    events          json not null,
    primary key (tenant_id, run_id, seq)
);

-- One row per dispatch of work: task, lease, result and verdict. Three writers, three groups of columns (column grants in roles.sql).
create table eec_workflow_step_attempt (
    tenant_id               text not null,
    run_id                  uuid not null,
    step_ref                text not null,
    item_index              int  not null default -1,
    kind                    text not null default 'step' check (kind in ('step', 'item', 'compensation', 'finally')),
    attempt                 int  not null,
    -- the task: the coordinator writes it once
    tier                    text not null,
    queue                   text not null,
    action                  text not null,
    input                   json not null,
    idempotency_key         text not null,
    due_time                timestamptz not null,
    queue_deadline          timestamptz,
    timeout_ms              bigint,
    heartbeat_timeout_ms    bigint,
    previous_details        json,                     -- heartbeat details of the attempt before (A5)
    traceparent             text not null default '',
    create_time             timestamptz not null,
    -- the verdict: the coordinator
    status                  text not null default 'open' check (status in ('open', 'succeeded', 'failed', 'timed_out', 'lost', 'cancelled')),
    end_time                timestamptz,
    cancel_requested_time   timestamptz,
    -- the lease: dispatch
    lease_secret            text,                     -- null: nobody has it
    worker_id               text,
    poll_id                 text,
    start_time              timestamptz,
    lease_expire_time       timestamptz,
    deadline_time           timestamptz,              -- start + timeout_ms
    heartbeat_time          timestamptz,              -- last heartbeat with details (feeds heartbeat_timeout_ms)
    heartbeat_details       json,
    check_time              timestamptz,              -- earliest of all limits: when a sweep must look at this attempt
    -- the outcome, first writer wins (report_time is null → not null, once): dispatch for a worker, the coordinator's sweep for silence
    outcome                 text,
    report_time             timestamptz,
    output                  json,
    output_size             int,
    output_hash             text,
    error_code              text,
    error_message           text,
    non_retryable           boolean not null default false,
    retry_after_ms          bigint,
    -- a report that came too late is kept, and changes nothing (A4)
    stale_outcome           text,
    stale_time              timestamptz,
    stale_output            json,
    stale_error_code        text,
    stale_error_message     text,
    primary key (tenant_id, run_id, step_ref, item_index, kind, attempt)
) with (fillfactor = 70);
-- Four small partial indexes: what can be leased, what was reported and not judged, what has a limit, what one poll leased.
-- The action stands before the tenant: a worker that names few actions of a queue full of others reads only its own.
create index eec_workflow_step_attempt_claim on eec_workflow_step_attempt (queue, action, tier, tenant_id, due_time)
    where status = 'open' and report_time is null and lease_secret is null;
create index eec_workflow_step_attempt_reported on eec_workflow_step_attempt (tenant_id, run_id)
    where status = 'open' and report_time is not null;
create index eec_workflow_step_attempt_check on eec_workflow_step_attempt (check_time)
    where status = 'open' and report_time is null and check_time is not null;
create index eec_workflow_step_attempt_poll on eec_workflow_step_attempt (poll_id)
    where status = 'open' and report_time is null and poll_id is not null;

-- Durable timers. `woken_time`: the timer loop has woken the run for it; the tick deletes the row.
create table eec_workflow_timer (
    tenant_id       text not null,
    run_id          uuid not null,
    kind            text not null,
    step_ref        text not null default '',
    item_index      int  not null default -1,
    due_time        timestamptz not null,
    woken_time      timestamptz,
    primary key (tenant_id, run_id, kind, step_ref, item_index)
);
create index eec_workflow_timer_run on eec_workflow_timer (tenant_id, run_id, due_time);
create index eec_workflow_timer_due on eec_workflow_timer (due_time) where woken_time is null;
create index eec_workflow_timer_woken on eec_workflow_timer (woken_time) where woken_time is not null;  -- few: for the net under lost wake-ups

-- Wake-ups are rows: append only, deduplicated at the claim, deleted by the tick that served them. No key on purpose.
create table eec_workflow_wakeup (
    tenant_id       text not null,
    run_id          uuid not null,
    due_time        timestamptz not null default eec_now()
);
create index eec_workflow_wakeup_claim on eec_workflow_wakeup (tenant_id, due_time);
create index eec_workflow_wakeup_run on eec_workflow_wakeup (tenant_id, run_id);

-- Checkpoints that ended, for the callers that wait for them (G9). `refs`: step ref → attempt whose row holds the output.
create table eec_workflow_checkpoint (
    tenant_id       text not null,
    run_id          uuid not null,
    name            text not null,
    status          text not null check (status in ('reached', 'unreachable')),
    at              timestamptz not null,
    refs            jsonb not null default '{}',
    primary key (tenant_id, run_id, name)
);

-- Runs whose tick raised, set aside alone (C9). The error is visible in GetRun; a wake-up in the future retries.
create table eec_workflow_quarantine (
    tenant_id       text not null,
    run_id          uuid not null,
    error           text not null,
    ticks           int  not null,                    -- how often in a row
    since           timestamptz not null,
    retry_time      timestamptz not null,
    primary key (tenant_id, run_id)
);

-- Hot tables turn over fast: let autovacuum follow the number of dead rows, not a share of the table.
alter table eec_workflow_wakeup set (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 1);
alter table eec_workflow_timer set (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000);
alter table eec_workflow_step_attempt set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 1);
alter table eec_workflow_run set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 1);
