-- Steps that wait: signals, external events, the waits that listen for them, and digests. Additive: a build of before goes on working.

-- What somebody told a step, named by (run, request id): kept until the step waits for it (ruling E1). Signals inserts it, the coordinator settles it.
create table eec_workflow_signal (
    tenant_id       text not null,
    run_id          uuid not null,
    request_id      text not null,
    number          bigint generated always as identity,  -- the order of what was said in one instant
    verb            text not null check (verb in ('approve', 'reject', 'resolve_interaction')),
    step_ref        text not null,
    payload         json not null default 'null',
    case_status     text not null default '',
    actor           text not null,
    approver_id     text not null default '',
    groups          text[] not null default '{}',
    comment         text not null default '',
    body_hash       text not null,
    call_id         text not null default '',
    create_time     timestamptz not null default eec_now(),
    status          text not null default 'kept' check (status in ('kept', 'applied', 'ignored', 'discarded')),
    settle_time     timestamptz,
    outcome_message text not null default '',
    primary key (tenant_id, run_id, request_id)
);
create index eec_workflow_signal_kept on eec_workflow_signal (tenant_id, run_id, create_time) where status = 'kept';

-- Open waits for external events: one row per pattern of a parked node (ruling E3). The coordinator opens and closes them in the commit that parks and wakes.
create table eec_workflow_wait (
    tenant_id       text not null,
    run_id          uuid not null,
    step_ref        text not null,
    attempt         int  not null,                    -- numbers the wait of the node
    requirement     text not null default '',
    event_name      text not null,
    correlation_key text not null default '',
    any_key         boolean not null default false,
    filter          text not null default '',         -- a CEL bool over EVENT
    event_set       boolean not null default false,
    open_time       timestamptz not null,
    close_time      timestamptz,
    primary key (tenant_id, run_id, step_ref, attempt, requirement)
);
create index eec_workflow_wait_match on eec_workflow_wait (tenant_id, event_name, correlation_key) where close_time is null;

-- What publishing and listening serialise on where an event is kept for waits to come: else a wait that opens and an event that is kept could miss each other. Whoever
-- keeps an event takes the locks of its key and of any key (null), shared, before it looks for waits; whoever opens a wait takes that of its pattern, exclusive, before
-- it looks for kept events.
create function eec_event_lock_key(tenant_id text, event_name text, correlation_key text) returns bigint language sql immutable parallel safe as
$$ select ('x' || left(encode(sha256(convert_to('ductor.event:' || tenant_id || chr(1) || event_name || coalesce(chr(1) || correlation_key, ''), 'UTF8')), 'hex'), 16))::bit(64)::bigint $$;

-- External events that did something or are kept (ruling E3). The payload is stored here and nowhere else. An id dedupes until `dedupe_until`: after that it
-- names another event, while a wait may still hold the first, so the time of publishing is part of the key.
create table eec_workflow_event (
    tenant_id       text not null,
    event_name      text not null,
    event_id        text not null,
    correlation_key text not null,
    payload         json not null,
    publish_time    timestamptz not null,
    keep_until      timestamptz,                      -- for waits to come
    dedupe_until    timestamptz not null,
    matched         int not null default 0,
    primary key (tenant_id, event_name, event_id, publish_time)
);
create index eec_workflow_event_kept on eec_workflow_event (tenant_id, event_name, correlation_key, publish_time) where keep_until is not null;
create index eec_workflow_event_expiry on eec_workflow_event (dedupe_until);

-- One receipt per wait and event.
create table eec_workflow_receipt (
    tenant_id       text not null,
    run_id          uuid not null,
    step_ref        text not null,
    attempt         int  not null,
    event_name      text not null,
    event_id        text not null,
    requirement     text not null default '',
    receive_time    timestamptz not null,
    applied_time    timestamptz,
    primary key (tenant_id, run_id, step_ref, attempt, event_name, event_id, requirement)
);
create index eec_workflow_receipt_new on eec_workflow_receipt (tenant_id, run_id) where applied_time is null;

-- Digests (ruling E5): one open window per (family, step, key); runs arrive in it, the first leads.
create table eec_workflow_digest (
    tenant_id       text not null,
    window_id       uuid not null,
    family_slug     text not null,
    step_ref        text not null,
    key             text not null,                    -- canonical JSON of the digest_key's value
    leader_run_id   uuid not null,
    mode            text not null check (mode in ('regular', 'backoff', 'timed')),
    max_events      int not null default 0,           -- 0: as many as a window can take
    open_time       timestamptz not null,
    due_time        timestamptz not null,
    close_time      timestamptz,                      -- nobody joins any more
    flush_time      timestamptz,                      -- the leader has gone on
    primary key (tenant_id, window_id)
);
create unique index eec_workflow_digest_open on eec_workflow_digest (tenant_id, family_slug, step_ref, key) where close_time is null;

-- What all who change a window or an arrival of one key serialise on.
create function eec_digest_lock_key(tenant_id text, family_slug text, step_ref text, key text) returns bigint language sql immutable parallel safe as
$$ select ('x' || left(encode(sha256(convert_to('ductor.digest:' || tenant_id || chr(1) || family_slug || chr(1) || step_ref || chr(1) || key, 'UTF8')), 'hex'), 16))::bit(64)::bigint $$;

-- A run in a window, or one that passed alone (no window). `place` is what the run is to be told; `told_time`: its tick has been shown it and has said so.
create table eec_workflow_digest_arrival (
    tenant_id       text not null,
    run_id          uuid not null,
    step_ref        text not null,
    attempt         int not null,
    window_id       uuid,
    dedupe          text not null default '',         -- of arrivals with one dedupe key only the first counts
    arrive_time     timestamptz not null,
    place           text not null check (place in ('passes', 'leads', 'follows', 'closed', 'merged')),
    told_time       timestamptz,
    leave_time      timestamptz,
    primary key (tenant_id, run_id, step_ref, attempt)
);
create index eec_workflow_digest_arrival_window on eec_workflow_digest_arrival (tenant_id, window_id, arrive_time, run_id) where window_id is not null;
create index eec_workflow_digest_arrival_new on eec_workflow_digest_arrival (tenant_id, run_id) where told_time is null;

-- When something passed or was flushed last, for the look-back of mode backoff.
create table eec_workflow_digest_last (
    tenant_id       text not null,
    family_slug     text not null,
    step_ref        text not null,
    key             text not null,
    last_time       timestamptz not null,
    primary key (tenant_id, family_slug, step_ref, key)
);
alter table eec_workflow_run add column merged_into_run_id uuid;
-- A wait for one event is over with its first: a second one, before a tick has come to the first, resolves nothing and must not be counted. Requirements of sets
-- have names.
create unique index eec_workflow_receipt_single on eec_workflow_receipt (tenant_id, run_id, step_ref, attempt) where requirement = '';
