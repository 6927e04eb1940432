-- Settings that a session starts with: of this database, and of roles that use our functions.
, users (role) as (
  select m.member
  from roles r
  join pg_catalog.pg_auth_members m on m.roleid = r.oid
  union
  select m.member
  from users u
  join pg_catalog.pg_auth_members m on m.roleid = u.role
),
settings as (
  select s.setrole, r.rolname, r.rolsuper, split_part(c.entry, '=', 1) as name, substr(c.entry, strpos(c.entry, '=') + 1) as value
  from pg_catalog.pg_db_role_setting s
  join pg_catalog.pg_database d on d.datname = current_database() and s.setdatabase in (d.oid, 0)
  left join pg_catalog.pg_roles r on r.oid = s.setrole
  cross join lateral unnest(s.setconfig) as c (entry)
),
judged as (
  select s.*,
         case
           -- Only a superuser can set this one. Triggers and foreign keys then do not fire.
           when s.name = 'session_replication_role' and s.value <> 'origin' then 'error'
           -- Commits can be lost.
           when s.name = 'synchronous_commit' and s.value = 'off' and s.setrole = 0 then 'error'
           when s.name = 'synchronous_commit' and s.value in ('off', 'local') then 'warning'
           -- Our functions keep state in these: claims could skip rows.
           when s.name like 'symphony.%' then case when s.setrole = 0 then 'error' else 'warning' end
           when s.name in ('default_transaction_isolation', 'default_transaction_read_only', 'default_transaction_deferrable', 'row_security',
                           'track_counts') then 'warning'
           -- Our functions set their own search_path, so that of a login does not matter.
           when s.name = 'search_path' and s.setrole = 0 then 'warning'
         end as severity
  from settings s
)
select null::name as schema, format('setting %s of database %I', j.name, current_database()) as object, 'value' as facet,
       string_agg(j.value, ' or ' order by j.value) as value, min(j.severity) as severity
from judged j
where j.setrole = 0
  and j.severity is not null
group by j.name
union all
-- Our roles are NOLOGIN, so their settings have no effect; a member can set them.
select null, format('setting %s of role %I', j.name, j.rolname), 'value', string_agg(j.value, ' or ' order by j.value),
       min(coalesce(j.severity, 'warning'))
from judged j
where j.setrole in (select r.oid from roles r)
group by j.name, j.rolname
union all
select null, format('setting %s of login %I', j.name, j.rolname), 'value', string_agg(j.value, ' or ' order by j.value), min(j.severity)
from judged j
where j.setrole in (select u.role from users u)
  and j.setrole not in (select r.oid from roles r)
  and not j.rolsuper
  and j.severity is not null
group by j.name, j.rolname
