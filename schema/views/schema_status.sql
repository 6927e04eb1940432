-- The installed lanes, for roles that may not read the table.
create or replace view symphony.schema_status as
select m.lane,
       max(m.schema_version) as schema_version,
       count(*) as migrations,
       max(m.applied_at) as applied_at
from symphony.schema_migrations m
group by m.lane;

comment on view symphony.schema_status is 'The installed lanes, and the schema version of each.';
