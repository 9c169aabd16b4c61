-- How runs start: timetables, event triggers, values of VARS per environment, release policies. Live are the triggers of a definition's newest version (D3): a
-- publish and an archiving write these rows in their own transaction, so a start is always of one version, never of a mix.

-- What started a run, the environment, and what VARS hold there instead of the defaults: frozen with the run (L8). `{}`: by hand; by a parent where there is one.
-- The payload of the event that started it stands beside its origin, so that lists need not drag it along; null: it is the run's input, or there is none.
alter table eec_workflow_run_start
    add column origin           json not null default '{}',
    add column event_payload    json,
    add column environment      text not null default '',
    add column variables        json not null default '{}';
-- The runs of a journey beside its first: successors, and all below them.
create index eec_workflow_run_start_journey on eec_workflow_run_start (tenant_id, journey_id, create_time, run_id) where journey_id <> run_id;

-- One row per schedule trigger that a definition ever published; its id is derived from definition and trigger (`model.starting.schedule_id`), so a pause outlasts a
-- publish. `next_time` null: retired (not live), paused, or broken. It moves in the transaction that fires, under the row's lock.
create table eec_workflow_schedule (
    tenant_id           text not null,
    schedule_id         uuid not null,
    definition_id       uuid not null,
    family_slug         text not null,
    trigger_id          text not null,
    -- what a publish writes
    live                boolean not null default true,
    version_id          uuid not null,
    version             int not null,
    cron_expression     text not null,
    timezone            text not null,
    catchup_window_ms   bigint not null,
    overlap_policy      text not null check (overlap_policy in ('skip', 'allow_all')),
    -- where it stands
    next_time           timestamptz,
    last_time           timestamptz,
    last_run_id         uuid,
    started_count       int not null default 0,
    skipped_count       int not null default 0,
    failed_count        int not null default 0,
    missed_count        int not null default 0,
    dropped_count       int not null default 0,
    error_code          text not null default '',
    error_message       text not null default '',
    paused_by           text not null default '',
    pause_reason        text not null default '',
    pause_time          timestamptz,                      -- null: it is not paused
    create_time         timestamptz not null default eec_now(),
    update_time         timestamptz not null default eec_now(),
    primary key (tenant_id, schedule_id)
) with (fillfactor = 70);
create index eec_workflow_schedule_due on eec_workflow_schedule (next_time) where next_time is not null;
create index eec_workflow_schedule_broken on eec_workflow_schedule (tenant_id, schedule_id) where live and next_time is null and pause_time is null;
create index eec_workflow_schedule_listing on eec_workflow_schedule (tenant_id, family_slug, trigger_id, schedule_id);
create index eec_workflow_schedule_definition on eec_workflow_schedule (tenant_id, definition_id);

-- What became of each time of a timetable (T2): the key makes a time fire once, whoever comes to it. A gap is a row of times that were passed over as one.
create table eec_workflow_schedule_fire (
    tenant_id           text not null,
    schedule_id         uuid not null,
    nominal_time        timestamptz not null,
    kind                text not null check (kind in ('fire', 'gap')),
    outcome             text not null check (outcome in ('started', 'skipped', 'failed', 'missed', 'dropped')),
    source              text not null check (source in ('timetable', 'backfill', 'manual')),
    request_id          text not null default '',         -- of a fire by hand
    run_id              uuid,
    count               int not null default 1,
    until_time          timestamptz,                      -- of a gap: the last time in it
    error_code          text not null default '',
    error_message       text not null default '',
    create_time         timestamptz not null default eec_now(),
    end_time            timestamptz,                      -- its run, and all that continued it, was seen to have ended
    tail_run_id         uuid,                             -- the last run known that continued it
    primary key (tenant_id, schedule_id, nominal_time, kind)
);
create index eec_workflow_schedule_fire_active on eec_workflow_schedule_fire (tenant_id, schedule_id, nominal_time)  -- few: what overlap is judged by
    where outcome = 'started' and end_time is null;
create index eec_workflow_schedule_fire_outcome on eec_workflow_schedule_fire (tenant_id, schedule_id, outcome, nominal_time, kind)  -- what people look for
    where outcome <> 'started';
create unique index eec_workflow_schedule_fire_request on eec_workflow_schedule_fire (tenant_id, schedule_id, request_id) where request_id <> '';

-- The patterns of live event triggers: an event looks up its own name, and the names with a wildcard that it may match. Filter and input stand in the manifest.
create table eec_workflow_event_trigger (
    tenant_id           text not null,
    pattern             text not null,
    definition_id       uuid not null,
    trigger_id          text not null,
    family_slug         text not null,
    version_id          uuid not null,
    version             int not null,
    filter              text not null default '',
    create_time         timestamptz not null default eec_now(),
    primary key (tenant_id, pattern, definition_id, trigger_id)
);
create index eec_workflow_event_trigger_definition on eec_workflow_event_trigger (tenant_id, definition_id);

-- What VARS hold in an environment instead of the definition's defaults (L8); for all versions.
create table eec_workflow_env_override (
    tenant_id           text not null,
    definition_id       uuid not null,
    environment         text not null,
    variables           json not null,
    updated_by          text not null default 'anonymous',
    update_time         timestamptz not null default eec_now(),
    primary key (tenant_id, definition_id, environment)
);

-- Which releases of a tenant's callers may start runs (T4). No row: the mode is off.
create table eec_workflow_release_policy (
    tenant_id           text not null primary key,
    mode                text not null check (mode in ('off', 'required')),
    live_release_ids    text[] not null default '{}',
    updated_by          text not null default 'anonymous',
    update_time         timestamptz not null default eec_now()
);
