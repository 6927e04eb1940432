-- Our roles: what they are, which roles they hold, and who can act as the owner.
, edges as (
  -- A membership can give three rights: INHERIT uses the role's privileges, SET becomes the role, ADMIN grants it to others.
  -- PostgreSQL 15 has no options for the first two: every membership gives both.
  select m.member, m.roleid,
         bool_or(coalesce((to_jsonb(m) ->> 'set_option')::boolean, true) or coalesce((to_jsonb(m) ->> 'inherit_option')::boolean, true)) as usable,
         bool_or(m.admin_option) as admin
  from pg_catalog.pg_auth_members m
  group by m.member, m.roleid
),
held (holder, role, direct) as (
  select r.oid, e.roleid, true
  from roles r
  join edges e on e.member = r.oid and (e.usable or e.admin)
  union
  select h.holder, e.roleid, false
  from held h
  join edges e on e.member = h.role and (e.usable or e.admin)
),
owners (member, usable, direct) as (
  select e.member, e.usable, true
  from control o
  join edges e on e.roleid = o.oid and (e.usable or e.admin)
  union
  select e.member, m.usable and e.usable, false
  from owners m
  join edges e on e.roleid = m.member and (e.usable or e.admin)
),
granters (role, member) as (
  select e.roleid, e.member
  from roles r
  join edges e on e.roleid = r.oid and e.admin
  where r.rolname <> 'symphony_control'
  union
  select g.role, e.member
  from granters g
  join edges e on e.roleid = g.member and e.usable
)
select null::name as schema, format('role %I', r.rolname) as object, 'attributes' as facet,
       concat_ws(' ', case when r.rolcanlogin then 'LOGIN' else 'NOLOGIN' end, case when r.rolsuper then 'SUPERUSER' end,
                 case when r.rolcreaterole then 'CREATEROLE' end, case when r.rolcreatedb then 'CREATEDB' end,
                 case when r.rolreplication then 'REPLICATION' end, case when r.rolbypassrls then 'BYPASSRLS' end) as value,
       'error' as severity
from roles r
union all
-- A role of ours that holds another of ours, or one with powers over the server. A role's admin may grant it to ours
-- at any time: one without such powers is no fact.
select null, format('membership of %I in %I', r.rolname, g.rolname), 'granted',
       case when bool_or(h.direct) then 'directly' else 'through other roles' end,
       case when g.oid < 16384 and not g.rolsuper
                 and g.rolname not in ('pg_read_all_data', 'pg_write_all_data', 'pg_read_server_files', 'pg_write_server_files',
                                       'pg_execute_server_program')
            then 'warning' else 'error' end
from held h
join roles r on r.oid = h.holder
join pg_catalog.pg_roles g on g.oid = h.role
where g.rolsuper
   or g.rolcreaterole
   or g.rolreplication
   or g.oid < 16384
   or g.oid in (select o.oid from roles o)
group by r.rolname, g.oid, g.rolname, g.rolsuper
union all
-- Who can act as the owner. A superuser can anyway. The current login is left out: an installer may be a member. From 16 on, a
-- role with CREATEROLE that installed holds ADMIN on the roles that it made, and only that.
select null, format('membership of %I in symphony_control', m.rolname), 'granted',
       concat(case when bool_or(o.direct) then 'directly' else 'through other roles' end, case when not bool_or(o.usable) then ', to hand on only' end),
       case when bool_or(o.usable) or not m.rolcreaterole then 'error' else 'warning' end
from owners o
join pg_catalog.pg_roles m on m.oid = o.member
where not m.rolsuper
  and m.rolname not in (session_user, current_user)
  and m.oid not in (select r.oid from roles r)
group by m.rolname, m.rolcreaterole
union all
-- Who can make others members of a runtime role. Logins are members of them, and that is no fact.
select null, format('right of %I to grant %I', m.rolname, r.rolname), 'granted', 'yes', 'warning'
from granters g
join roles r on r.oid = g.role
join pg_catalog.pg_roles m on m.oid = g.member
where not m.rolsuper
  and not m.rolcreaterole
