"""The admin service: what a tenant's operators decide about the tenant as a whole (ruling T4)."""
