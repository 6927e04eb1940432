-- What retention removed, for roles that may not read the table.
create or replace view symphony.retention_removals_log as
select r.removal_no, r.kept, r.removed_rows, r.removed_before, r.database_user, r.removed_at
from symphony.retention_removals r;

comment on view symphony.retention_removals_log is 'The keys, events and metadata that were removed at the end of their retention, a row for each batch.';
