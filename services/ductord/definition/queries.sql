-- The definition service's statements. Lock order, everywhere: the family's row, then its draft, then its versions. Every row is found with its tenant.
-- A family's row is locked `for no key update`: it must not wait for the foreign-key locks of its own drafts and versions.

-- name: find
-- What an id names (D1): a family, or one of its versions.
select f.definition_id::text, f.family_slug, f.latest_version, null::text as version_id, null::int as version
from eec_workflow_definition f where f.tenant_id = $1 and f.definition_id = $2
union all
select f.definition_id::text, f.family_slug, f.latest_version, v.version_id::text, v.version
from eec_workflow_version v
join eec_workflow_definition f on f.tenant_id = v.tenant_id and f.definition_id = v.definition_id
where v.tenant_id = $1 and v.version_id = $2;

-- name: find_slug
select f.definition_id::text, f.family_slug, f.latest_version, null::text as version_id, null::int as version
from eec_workflow_definition f where f.tenant_id = $1 and f.family_slug = $2;

-- name: insert_family
-- Waits for a concurrent creation of the same slug to end; no row: the family was there first.
insert into eec_workflow_definition (tenant_id, definition_id, family_slug) values ($1, $2, $3)
on conflict (tenant_id, family_slug) do nothing
returning definition_id::text;

-- name: lock_family
-- Serialises everything that gives numbers: publish, archive, delete, reopen.
select definition_id::text, family_slug, latest_version, last_revision
from eec_workflow_definition where tenant_id = $1 and definition_id = $2 for no key update;

-- name: get_draft
select f.definition_id::text, f.family_slug, f.latest_version, d.draft_revision, d.document::text, d.create_time, d.update_time, eec_now() as now
from eec_workflow_draft d
join eec_workflow_definition f on f.tenant_id = d.tenant_id and f.definition_id = d.definition_id
where d.tenant_id = $1 and d.definition_id = $2;

-- name: insert_draft
insert into eec_workflow_draft (tenant_id, definition_id, draft_revision, title, description, tags, document)
values ($1, $2, $3, $4, $5, $6, $7::json)
on conflict (tenant_id, definition_id) do nothing
returning draft_revision;

-- name: update_draft
-- Optimistic: no row when another edit, a publish or a deletion came first.
update eec_workflow_draft
set draft_revision = draft_revision + 1, title = $4, description = $5, tags = $6, document = $7::json, update_time = greatest(update_time, eec_now())
where tenant_id = $1 and definition_id = $2 and draft_revision = $3
returning draft_revision;

-- name: renew_draft
-- The fresh draft of a publish: the same content under a new revision, so that the published revision is published once.
update eec_workflow_draft set draft_revision = draft_revision + 1, update_time = greatest(update_time, eec_now())
where tenant_id = $1 and definition_id = $2 and draft_revision = $3
returning draft_revision;

-- name: delete_draft
-- The family remembers the revision: a draft that is reopened later goes on from there, and an editor of the old one conflicts.
with gone as (
    delete from eec_workflow_draft where tenant_id = $1 and definition_id = $2 and draft_revision = $3 returning draft_revision
)
update eec_workflow_definition f set last_revision = gone.draft_revision
from gone where f.tenant_id = $1 and f.definition_id = $2
returning f.last_revision;

-- name: number_version
-- Numbers have no gaps (D2): given under the family's lock, in the transaction that inserts the version.
update eec_workflow_definition set latest_version = latest_version + 1
where tenant_id = $1 and definition_id = $2 and latest_version = $3
returning latest_version;

-- name: insert_version
insert into eec_workflow_version (tenant_id, version_id, definition_id, version, title, description, tags, document, manifest, manifest_hash,
                                  format_version, engine_level, draft_revision)
values ($1, $2, $3, $4, $5, $6, $7, $8::json, $9::json, $10, $11, $12, $13);

-- name: get_version
select v.version_id::text, f.definition_id::text, f.family_slug, v.version, v.status, v.draft_revision, v.document::text, v.manifest_hash, v.publish_time,
       v.archive_time, eec_now() as now
from eec_workflow_version v
join eec_workflow_definition f on f.tenant_id = v.tenant_id and f.definition_id = v.definition_id
where v.tenant_id = $1 and v.version_id = $2;

-- name: get_newest
-- The version with the highest number, archived or not; it is the current one unless it is archived (D1, D3).
select v.version_id::text, f.definition_id::text, f.family_slug, v.version, v.status, v.draft_revision, v.document::text, v.manifest_hash, v.publish_time,
       v.archive_time, eec_now() as now
from eec_workflow_definition f
join eec_workflow_version v on v.tenant_id = f.tenant_id and v.definition_id = f.definition_id and v.version = f.latest_version
where f.tenant_id = $1 and f.definition_id = $2;

-- name: archive_version
update eec_workflow_version set status = 'archived', archive_time = eec_now()
where tenant_id = $1 and version_id = $2 and status = 'published'
returning version_id::text;

-- name: insert_audit
-- In the transaction that does it, so that what is written down has happened; once, also where it is done again because its COMMIT was lost.
insert into eec_workflow_audit (tenant_id, audit_id, actor, action, target, reason, request_id, outcome, detail)
values ($1, $2, $3, $4, $5, $6, $7, 'applied', $8::jsonb) on conflict do nothing;

-- name: list_entries
-- Drafts and versions, each an entry, newest first; both halves are cut to one page before they meet, and only the page's documents are opened for its counts.
-- $2 status ('' any), $3 text in slug, title or description ('' any), $4 tags that an entry carries all, $5 family ('' any), $6 and $7 the last entry seen.
with drafts as (
    select d.create_time as time, d.definition_id as id, f.definition_id, f.family_slug, d.title, d.description, d.tags, 'draft' as status,
           f.latest_version + 1 as version, d.draft_revision, '' as manifest_hash, d.update_time, null::timestamptz as publish_time,
           null::timestamptz as archive_time, d.document
    from eec_workflow_draft d
    join eec_workflow_definition f on f.tenant_id = d.tenant_id and f.definition_id = d.definition_id
    where d.tenant_id = $1 and $2::text in ('', 'draft') and ($5::text = '' or f.family_slug = $5) and d.tags @> $4::text[]
      and ($3::text = '' or strpos(lower(f.family_slug || E'\n' || d.title || E'\n' || d.description), lower($3)) > 0)
      and ($6::timestamptz is null or (d.create_time, d.definition_id) < ($6, $7::uuid))
    order by d.create_time desc, d.definition_id desc limit $8
),
versions as (
    select v.publish_time as time, v.version_id as id, f.definition_id, f.family_slug, v.title, v.description, v.tags, v.status,
           v.version, v.draft_revision, v.manifest_hash, coalesce(v.archive_time, v.publish_time) as update_time, v.publish_time,
           v.archive_time, v.document
    from eec_workflow_version v
    join eec_workflow_definition f on f.tenant_id = v.tenant_id and f.definition_id = v.definition_id
    where v.tenant_id = $1 and $2::text in ('', v.status) and ($5::text = '' or f.family_slug = $5) and v.tags @> $4::text[]
      and ($3::text = '' or strpos(lower(f.family_slug || E'\n' || v.title || E'\n' || v.description), lower($3)) > 0)
      and ($6::timestamptz is null or (v.publish_time, v.version_id) < ($6, $7::uuid))
    order by v.publish_time desc, v.version_id desc limit $8
),
page as (select * from drafts union all select * from versions order by time desc, id desc limit $8)
select id::text, definition_id::text, family_slug, title, description, tags, status, version, draft_revision, manifest_hash, time as create_time, update_time,
       publish_time, archive_time, coalesce(json_array_length(document -> 'steps'), 0) as step_count,
       coalesce(json_array_length(document -> 'edges'), 0) as edge_count, eec_now() as now
from page order by time desc, id desc;

-- name: now
select eec_now();
