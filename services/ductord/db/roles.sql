-- One login per service, none of them the owner (applied by every `ductor migrate`; idempotent).
-- Roles come without a password: set one (`alter role ductor_trigger password '…'`) or use certificates. What a role may not do is «permission denied»;
-- what another tenant owns is invisible. Row-level security is forced: edge roles see the tenant of their transaction, the coordinator and dispatch
-- serve all tenants.

do $$
declare r text;
begin
    foreach r in array array['definition', 'trigger', 'run_control', 'signals', 'reads', 'admin', 'coordinator', 'dispatch'] loop
        if not exists (select from pg_roles where rolname = 'ductor_' || r) then
            begin
                execute format('create role %I login nosuperuser nocreatedb nocreaterole nobypassrls', 'ductor_' || r);
            exception when duplicate_object or unique_violation then null;  -- two databases of one cluster migrated at the same moment
            end;
        end if;
    end loop;
end $$;

do $$
declare t text; edge text := 'ductor_definition, ductor_trigger, ductor_run_control, ductor_signals, ductor_reads, ductor_admin';
begin
    execute format('revoke create on schema %I from public', current_schema());
    for t in select relname from pg_class where relnamespace = current_schema()::regnamespace and relkind = 'r' and relname like 'eec\_workflow\_%' loop
        execute format('revoke all on %I from public, %s, ductor_coordinator, ductor_dispatch', t, edge);
        execute format('alter table %I enable row level security', t);
        execute format('alter table %I force row level security', t);
        execute format('drop policy if exists tenant on %I', t);
        execute format('drop policy if exists all_tenants on %I', t);
        execute format('create policy tenant on %I to %s using (tenant_id = current_setting(''ductor.tenant_id'', true)) with check (tenant_id = current_setting(''ductor.tenant_id'', true))', t, edge);
        execute format('create policy all_tenants on %I to ductor_coordinator, ductor_dispatch using (true) with check (true)', t);
    end loop;
end $$;

-- Every service looks whether the schema is the one that it knows, and refuses to serve on another.
grant select on eec_migration to ductor_definition, ductor_trigger, ductor_run_control, ductor_signals, ductor_reads, ductor_admin, ductor_coordinator,
    ductor_dispatch;

-- definition: drafts and versions. A version row never changes but for its retirement.
grant select, insert, update on eec_workflow_definition to ductor_definition;
grant select, insert, update, delete on eec_workflow_draft to ductor_definition;
grant select, insert, update (status, archive_time) on eec_workflow_version to ductor_definition;
grant insert on eec_workflow_audit to ductor_definition;
grant select, insert, update (live, version_id, version, cron_expression, timezone, catchup_window_ms, overlap_policy, next_time, family_slug, error_code,
    error_message, update_time) on eec_workflow_schedule to ductor_definition;
grant select, insert, update, delete on eec_workflow_event_trigger, eec_workflow_env_override to ductor_definition;

-- trigger: gives birth to runs, wakes the coordinator, waits for checkpoints.
grant select on eec_workflow_definition, eec_workflow_version, eec_workflow_run, eec_workflow_checkpoint, eec_workflow_step_attempt to ductor_trigger;
grant select, insert on eec_workflow_run_start to ductor_trigger;
grant insert on eec_workflow_run_label, eec_workflow_wakeup, eec_workflow_audit to ductor_trigger;
grant select on eec_workflow_event_trigger, eec_workflow_env_override, eec_workflow_release_policy to ductor_trigger;
grant select, update (next_time, last_time, last_run_id, started_count, skipped_count, failed_count, dropped_count, error_code, error_message, paused_by, pause_reason,
    pause_time, update_time) on eec_workflow_schedule to ductor_trigger;
grant select, insert, update on eec_workflow_schedule_fire to ductor_trigger;

-- run_control: asks, and looks at what became of it. It never writes a run.
grant select on eec_workflow_version, eec_workflow_run_start, eec_workflow_run, eec_workflow_transition, eec_workflow_step_attempt, eec_workflow_timer,
    eec_workflow_quarantine, eec_workflow_compensation, eec_workflow_signal, eec_workflow_digest, eec_workflow_child, eec_workflow_item_page
    to ductor_run_control;
grant select, insert on eec_workflow_intent to ductor_run_control;
grant insert on eec_workflow_wakeup, eec_workflow_audit to ductor_run_control;  -- a resume that only wakes a run that was set aside settles itself

-- signals: brings word from outside. A row lock on a wait keeps it open until the receipt is written; row locks need UPDATE on some column.
grant select on eec_workflow_version, eec_workflow_run_start, eec_workflow_run to ductor_signals;
grant select, insert on eec_workflow_signal, eec_workflow_event, eec_workflow_receipt to ductor_signals;
grant select, update (open_time) on eec_workflow_wait to ductor_signals;
grant insert on eec_workflow_wakeup to ductor_signals;
grant select on eec_workflow_event_trigger, eec_workflow_env_override to ductor_signals;
grant insert on eec_workflow_run_start to ductor_signals;  -- an event starts runs

-- reads: looks, never touches. A wake-up of a run that has no state yet is what makes a run `pending`.
grant select on eec_workflow_definition, eec_workflow_version, eec_workflow_run_start, eec_workflow_run_label, eec_workflow_run, eec_workflow_wakeup,
    eec_workflow_transition, eec_workflow_step_attempt, eec_workflow_timer, eec_workflow_checkpoint, eec_workflow_quarantine, eec_workflow_audit,
    eec_workflow_intent, eec_workflow_compensation, eec_workflow_signal, eec_workflow_wait, eec_workflow_event, eec_workflow_receipt, eec_workflow_digest,
    eec_workflow_digest_arrival, eec_workflow_child, eec_workflow_item_page to ductor_reads;
grant select on eec_workflow_schedule, eec_workflow_schedule_fire, eec_workflow_event_trigger to ductor_reads;  -- for a person with psql

-- admin: what a tenant's operators decide about the tenant as a whole.
grant select, insert, update on eec_workflow_release_policy to ductor_admin;
grant insert on eec_workflow_audit to ductor_admin;

grant select, insert, update on eec_workflow_api_key to ductor_admin;

-- Who serves RPCs looks a credential up, notes that it was used, and puts down who tried what they may not. Nobody but admin makes or ends one.
grant select, update (last_use_time) on eec_workflow_api_key
    to ductor_definition, ductor_trigger, ductor_run_control, ductor_signals, ductor_reads, ductor_dispatch;
grant insert on eec_workflow_audit to ductor_signals, ductor_reads, ductor_dispatch;

-- coordinator: the sole writer of runs. Of an attempt it writes the task, the verdict and, for silence, the outcome.
grant select on eec_workflow_definition, eec_workflow_version to ductor_coordinator;
grant select, insert on eec_workflow_run_start, eec_workflow_transition, eec_workflow_run_label to ductor_coordinator;
grant select, insert, delete on eec_workflow_checkpoint to ductor_coordinator;  -- a redrive makes an unreachable one possible again
grant select, insert, update on eec_workflow_run to ductor_coordinator;
grant select, insert, update (status, end_time, cancel_requested_time, outcome, report_time, error_code, error_message, check_time, due_time, queue_deadline,
    held_due_time, late_judged_time) on eec_workflow_step_attempt to ductor_coordinator;
grant select, insert, update (status, settle_time, outcome_code, outcome_message, result) on eec_workflow_intent to ductor_coordinator;
grant select, insert, update on eec_workflow_compensation to ductor_coordinator;
grant select, insert, update (status, settle_time, outcome_message) on eec_workflow_signal to ductor_coordinator;
grant select, insert, update (close_time) on eec_workflow_wait to ductor_coordinator;
grant select, delete on eec_workflow_event to ductor_coordinator;
grant select, insert, update (leader_run_id, close_time, flush_time) on eec_workflow_digest to ductor_coordinator;
grant select, insert, update (place, told_time, leave_time) on eec_workflow_digest_arrival to ductor_coordinator;
grant select, insert, update (last_time) on eec_workflow_digest_last to ductor_coordinator;
grant select, insert, update (applied_time) on eec_workflow_receipt to ductor_coordinator;
grant select, insert, update, delete on eec_workflow_timer, eec_workflow_quarantine to ductor_coordinator;
grant select, insert, update (due_time), delete on eec_workflow_wakeup to ductor_coordinator;  -- row locks need UPDATE on some column
grant insert on eec_workflow_audit to ductor_coordinator;
grant select on eec_workflow_env_override to ductor_coordinator;
grant select, update (next_time, last_time, last_run_id, started_count, skipped_count, failed_count, missed_count, error_code, error_message, update_time)
    on eec_workflow_schedule to ductor_coordinator;
grant select, insert, update on eec_workflow_schedule_fire to ductor_coordinator;
grant select, insert on eec_workflow_item_page to ductor_coordinator;
grant select, insert, update (child_run_id, sync, detached, end_time, status, checkpoint_status, error_code, error_message, applied_time)
    on eec_workflow_child to ductor_coordinator;

-- dispatch: lease and result columns of an attempt, nothing else.
grant select, update (lease_secret, worker_id, poll_id, start_time, lease_expire_time, deadline_time, heartbeat_time, heartbeat_details, check_time,
    outcome, report_time, output, output_size, output_hash, error_code, error_message, non_retryable, retry_after_ms,
    stale_outcome, stale_time, stale_output, stale_error_code, stale_error_message) on eec_workflow_step_attempt to ductor_dispatch;
grant insert on eec_workflow_wakeup to ductor_dispatch;
