-- The archived partitions of the ledger, for roles that may not read the table.
create or replace view symphony.archived_ledger_partitions as
select r.archive_id, r.archive_name, r.partition_name, r.from_id, r.to_id, r.row_count,
       encode(r.content_digest, 'hex') as content_digest, encode(r.manifest_digest, 'hex') as manifest_digest,
       r.location, r.actor, r.reason, r.database_user, r.archived_at,
       -- Until symphony archive has dropped it.
       coalesce(to_regclass(format('symphony.%I', r.partition_name))::oid = r.partition_oid, false) as is_kept
from symphony.payment_ledger_archives r;

comment on view symphony.archived_ledger_partitions is
  'The archived partitions of the ledger: where each archive is, its digests, and whether its table is still to be dropped (is_kept).';
