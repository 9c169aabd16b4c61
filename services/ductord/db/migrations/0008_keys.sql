-- Credentials (ruling N1). A key belongs to a tenant; those of the platform's own workers and operators to the tenant '*', which is no possible id of a tenant.
-- Only the SHA-256 of a token's secret is stored: the secret is 32 random bytes, nothing that could be guessed from its hash.

create table eec_workflow_api_key (
    tenant_id           text not null,
    key_id              uuid not null,
    name                text not null,
    secret_hash         bytea not null check (length(secret_hash) = 32),
    scopes              text[] not null check (cardinality(scopes) > 0),
    groups              text[] not null default '{}',
    acts_for_others     boolean not null default false,
    create_time         timestamptz not null default eec_now(),
    created_by          text not null,
    expire_time         timestamptz,
    revoke_time         timestamptz,
    revoked_by          text not null default '',
    rotated_from        uuid,
    rotated_to          uuid,
    last_use_time       timestamptz,
    primary key (tenant_id, key_id)
);

-- A name belongs to one key, and to the one that takes its place.
create unique index eec_workflow_api_key_name on eec_workflow_api_key (tenant_id, name) where revoke_time is null and rotated_to is null;
create index eec_workflow_api_key_listing on eec_workflow_api_key (tenant_id, create_time, key_id);
