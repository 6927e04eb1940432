-- What is really there: every fact about the objects of Symphony that an install decides.
--
-- The same query makes the list that a build carries (catalogue/*.txt) and reads the database that is
-- verified, so the two can differ only where the databases differ. It needs no rights beyond the
-- catalogue, which everybody may read. Texts that PostgreSQL prints differently from version to version
-- are left out or hashed in a form that does not change.
with schemas as (
  select n.oid, n.nspname, n.nspowner, n.nspacl
  from pg_catalog.pg_namespace n
  where n.nspname in ('symphony', 'm10_recovery')
),
relations as (
  select c.*, s.nspname,
         case c.relkind when 'r' then 'table' when 'v' then 'view' when 'S' then 'sequence' when 'm' then 'materialized view'
                        when 'p' then 'partitioned table' when 'f' then 'foreign table' end as kind
  from pg_catalog.pg_class c
  join schemas s on s.oid = c.relnamespace
  where c.relkind in ('r', 'v', 'S', 'm', 'p', 'f')
),
functions as (
  select p.*, format('function %I.%I(%s)', s.nspname, p.proname, pg_catalog.pg_get_function_identity_arguments(p.oid)) as object
  from pg_catalog.pg_proc p
  join schemas s on s.oid = p.pronamespace
),
types as (
  select t.*, s.nspname,
         format('%s %I.%I', case t.typtype when 'e' then 'enum' when 'd' then 'domain' when 'r' then 'range' else 'type' end,
                s.nspname, t.typname) as object
  from pg_catalog.pg_type t
  join schemas s on s.oid = t.typnamespace
  left join pg_catalog.pg_class c on c.oid = t.typrelid
  where t.typcategory <> 'A'
    and (t.typrelid = 0 or c.relkind = 'c')
),
rights as (
  select format('schema %I', s.nspname) as object, s.nspowner as owner, null::text as columns,
         coalesce(s.nspacl, pg_catalog.acldefault('n', s.nspowner)) as acl
  from schemas s
  union all
  select format('%s %I.%I', r.kind, r.nspname, r.relname), r.relowner, null,
         coalesce(r.relacl, pg_catalog.acldefault(case r.relkind when 'S' then 's' else 'r' end::"char", r.relowner))
  from relations r
  union all
  select format('%s %I.%I', r.kind, r.nspname, r.relname), r.relowner, a.attname, a.attacl
  from relations r
  join pg_catalog.pg_attribute a on a.attrelid = r.oid and a.attacl is not null
  union all
  select f.object, f.proowner, null, coalesce(f.proacl, pg_catalog.acldefault('f', f.proowner))
  from functions f
  union all
  select t.object, t.typowner, null, coalesce(t.typacl, pg_catalog.acldefault('T', t.typowner))
  from types t
),
roles as (
  select r.*
  from pg_catalog.pg_roles r
  where r.rolname in ('symphony_control', 'symphony_ingest', 'symphony_executor', 'symphony_operator', 'symphony_readonly',
                      'symphony_auditor', 'symphony_auth')
),
facts (object, facet, value) as (
  select format('schema %I', s.nspname), 'owner', pg_catalog.pg_get_userbyid(s.nspowner)::text
  from schemas s
  union all
  select format('role %I', r.rolname), 'attributes',
         concat_ws(' ', case when r.rolcanlogin then 'LOGIN' else 'NOLOGIN' end, case when r.rolsuper then 'SUPERUSER' end,
                   case when r.rolcreaterole then 'CREATEROLE' end, case when r.rolcreatedb then 'CREATEDB' end,
                   case when r.rolreplication then 'REPLICATION' end, case when r.rolbypassrls then 'BYPASSRLS' end)
  from roles r
  union all
  select format('settings of role %I', r.rolname), 'definition', array_to_string(s.setconfig, ', ')
  from roles r
  join pg_catalog.pg_db_role_setting s on s.setrole = r.oid
  union all
  -- Logins are granted the runtime roles, and that is nobody's business here. Who may act as the owner is, and so is a
  -- runtime role that holds another. Whoever looks is left out: an installer is a member while it installs.
  select format('membership of %I in %I', u.rolname, r.rolname), 'granted', 'yes'
  from roles r
  join pg_catalog.pg_auth_members m on m.roleid = r.oid
  join pg_catalog.pg_roles u on u.oid = m.member
  where (r.rolname = 'symphony_control' or u.oid in (select o.oid from roles o))
    and u.rolname not in (session_user, current_user)
    -- From 16 on a membership may come without the right to use it; 15 has no such columns.
    and (coalesce((to_jsonb(m) ->> 'set_option')::boolean, true) or coalesce((to_jsonb(m) ->> 'inherit_option')::boolean, true))
  union all
  select format('%s %I.%I', r.kind, r.nspname, r.relname), f.facet, f.value
  from relations r
  cross join lateral (values
    ('owner', pg_catalog.pg_get_userbyid(r.relowner)::text),
    ('persistence', case r.relpersistence when 'p' then 'permanent' when 'u' then 'unlogged' else 'temporary' end),
    -- Storage is for the DBA to tune; what a view may do with its reader's rights is not.
    ('options', case when r.relkind = 'v' then coalesce((select string_agg(o.o, ', ' order by o.o) from unnest(r.reloptions) as o (o)), 'none') end),
    ('row security', case when r.relrowsecurity or r.relforcerowsecurity then 'on' else 'off' end),
    ('definition', case when r.relkind in ('v', 'm') then md5(regexp_replace(pg_catalog.pg_get_viewdef(r.oid), '\s+', ' ', 'g')) end)
  ) as f (facet, value)
  where f.value is not null
  union all
  select format('column %I.%I.%I', r.nspname, r.relname, a.attname), 'definition',
         concat_ws(' ', pg_catalog.format_type(a.atttypid, a.atttypmod),
                   case when a.attcollation <> t.typcollation then 'collate ' || a.attcollation::regcollation end,
                   case when a.attnotnull then 'not null' end,
                   'default ' || pg_catalog.pg_get_expr(d.adbin, d.adrelid),
                   case when a.attidentity <> '' then 'identity' end, case when a.attgenerated <> '' then 'generated' end)
  from relations r
  join pg_catalog.pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped
  join pg_catalog.pg_type t on t.oid = a.atttypid
  left join pg_catalog.pg_attrdef d on d.adrelid = r.oid and d.adnum = a.attnum
  union all
  select format('constraint %I on %I.%I', c.conname, r.nspname, r.relname), 'definition',
         pg_catalog.pg_get_constraintdef(c.oid) || case when c.convalidated then '' else ' not valid' end
  from relations r
  join pg_catalog.pg_constraint c on c.conrelid = r.oid and c.contype <> 'n'
  union all
  select format('constraint %I on %s', c.conname, t.object), 'definition', pg_catalog.pg_get_constraintdef(c.oid)
  from types t
  join pg_catalog.pg_constraint c on c.contypid = t.oid and c.contype <> 'n'
  union all
  select format('index %I on %I.%I', i.relname, r.nspname, r.relname), 'definition',
         pg_catalog.pg_get_indexdef(x.indexrelid) || case when x.indisvalid and x.indisready then '' else ' invalid' end
  from relations r
  join pg_catalog.pg_index x on x.indrelid = r.oid
  join pg_catalog.pg_class i on i.oid = x.indexrelid
  union all
  select format('trigger %I on %I.%I', t.tgname, r.nspname, r.relname), 'definition',
         pg_catalog.pg_get_triggerdef(t.oid) || case t.tgenabled when 'A' then ' always' when 'O' then '' when 'R' then ' replica only' else ' disabled' end
  from relations r
  join pg_catalog.pg_trigger t on t.tgrelid = r.oid and not t.tgisinternal
  union all
  select format('rule %I on %I.%I', w.rulename, r.nspname, r.relname), 'definition', md5(pg_catalog.pg_get_ruledef(w.oid))
  from relations r
  join pg_catalog.pg_rewrite w on w.ev_class = r.oid and w.rulename <> '_RETURN'
  union all
  select format('policy %I on %I.%I', p.polname, r.nspname, r.relname), 'definition',
         concat_ws(' ', p.polcmd, 'using', pg_catalog.pg_get_expr(p.polqual, p.polrelid), 'check', pg_catalog.pg_get_expr(p.polwithcheck, p.polrelid))
  from relations r
  join pg_catalog.pg_policy p on p.polrelid = r.oid
  union all
  select format('child %s of %I.%I', h.inhrelid::regclass, r.nspname, r.relname), 'definition', 'inherits'
  from relations r
  join pg_catalog.pg_inherits h on h.inhparent = r.oid
  union all
  select t.object, f.facet, f.value
  from types t
  cross join lateral (values
    ('owner', pg_catalog.pg_get_userbyid(t.typowner)::text),
    ('definition', case t.typtype
       when 'e' then (select string_agg(e.enumlabel, ', ' order by e.enumsortorder) from pg_catalog.pg_enum e where e.enumtypid = t.oid)
       when 'd' then concat_ws(' ', pg_catalog.format_type(t.typbasetype, t.typtypmod), case when t.typnotnull then 'not null' end, t.typdefault)
       else t.typtype::text end)
  ) as f (facet, value)
  union all
  select f.object, x.facet, x.value
  from functions f
  join pg_catalog.pg_language l on l.oid = f.prolang
  cross join lateral (values
    ('owner', pg_catalog.pg_get_userbyid(f.proowner)::text),
    ('arguments', pg_catalog.pg_get_function_arguments(f.oid)),
    ('result', coalesce(pg_catalog.pg_get_function_result(f.oid), 'none')),
    ('properties', concat_ws(' ', l.lanname, case f.provolatile when 'i' then 'immutable' when 's' then 'stable' else 'volatile' end,
       case when f.prosecdef then 'security definer' else 'security invoker' end, case when f.proisstrict then 'strict' end,
       case f.proparallel when 's' then 'parallel safe' when 'r' then 'parallel restricted' end,
       case f.prokind when 'p' then 'procedure' when 'a' then 'aggregate' when 'w' then 'window' end)),
    ('settings', coalesce((select string_agg(c.c, '; ' order by c.c) from unnest(f.proconfig) as c (c)), 'none')),
    ('body', md5(f.prosrc))
  ) as x (facet, value)
  union all
  select format('right of %s to %s on %s%s', coalesce(pg_catalog.pg_get_userbyid(nullif(e.grantee, 0))::text, 'PUBLIC'), e.privilege_type, r.object,
                coalesce(' (' || r.columns || ')', '')),
         'granted', case when e.is_grantable then 'with grant option' else 'yes' end
  from rights r
  cross join lateral pg_catalog.aclexplode(r.acl) e
  where e.grantee <> r.owner
  union all
  -- What the owner may do itself, as which the functions run. MAINTAIN came with 17.
  select r.object, 'rights of the owner' || coalesce(' (' || r.columns || ')', ''), string_agg(e.privilege_type, ', ' order by e.privilege_type)
  from rights r
  cross join lateral pg_catalog.aclexplode(r.acl) e
  where e.grantee = r.owner
    and e.privilege_type <> 'MAINTAIN'
  group by r.object, r.columns
  union all
  select format('default rights of %s', pg_catalog.pg_get_userbyid(d.defaclrole)), 'granted', d.defaclacl::text
  from pg_catalog.pg_default_acl d
  where d.defaclnamespace in (select s.oid from schemas s)
     or d.defaclnamespace = 0 and d.defaclrole in (select r.oid from roles r)
)
select object, facet, coalesce(regexp_replace(value, '\s+', ' ', 'g'), 'none') as value
from facts
order by object collate "C", facet collate "C"
