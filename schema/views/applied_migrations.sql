-- The applied migrations, for `symphony verify` and roles that may not read the table.
create or replace view symphony.applied_migrations as
select m.lane,
       m.migration,
       m.sha256,
       m.schema_version,
       m.applied_at
from symphony.schema_migrations m;

comment on view symphony.applied_migrations is 'The migrations applied to this database, each with the hash of its text.';
