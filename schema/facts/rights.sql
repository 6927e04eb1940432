-- Who may do what with our objects, now and by default.
, rights as (
  select s.nspname as schema, format('schema %I', s.nspname) as object, s.nspowner as owner, null::text as columns,
         coalesce(s.nspacl, pg_catalog.acldefault('n', s.nspowner)) as acl
  from schemas s
  union all
  select r.nspname, r.object, r.relowner, null,
         coalesce(r.relacl, pg_catalog.acldefault(case r.relkind when 'S' then 's' else 'r' end::"char", r.relowner))
  from relations r
  union all
  select r.nspname, r.object, r.relowner, a.attname, a.attacl
  from relations r
  join pg_catalog.pg_attribute a on a.attrelid = r.oid and a.attacl is not null
  union all
  select f.nspname, f.object, f.proowner, null, coalesce(f.proacl, pg_catalog.acldefault('f', f.proowner))
  from functions f
  union all
  select t.nspname, t.object, t.typowner, null, coalesce(t.typacl, pg_catalog.acldefault('T', t.typowner))
  from types t
)
select r.schema,
       format('right of %s to %s on %s%s', coalesce(pg_catalog.pg_get_userbyid(nullif(e.grantee, 0))::text, 'PUBLIC'), e.privilege_type, r.object,
              coalesce(' (' || r.columns || ')', '')) as object,
       'granted' as facet, case when bool_or(e.is_grantable) then 'with grant option' else 'yes' end as value, 'error' as severity
from rights r
cross join lateral pg_catalog.aclexplode(r.acl) e
where e.grantee <> r.owner
group by r.schema, r.object, r.columns, e.grantee, e.privilege_type
union all
-- What the owner may do itself, as which the functions run. MAINTAIN came with 17.
select r.schema, r.object, 'rights of the owner' || coalesce(' (' || r.columns || ')', ''),
       string_agg(e.privilege_type, ', ' order by e.privilege_type), 'error'
from rights r
cross join lateral pg_catalog.aclexplode(r.acl) e
where e.grantee = r.owner
  and e.privilege_type <> 'MAINTAIN'
group by r.schema, r.object, r.columns
union all
-- Any role may set defaults for what it will create. Only our owner creates anything here.
select n.nspname, format('default rights of symphony_control on %s%s',
                         case d.defaclobjtype when 'r' then 'tables' when 'S' then 'sequences' when 'f' then 'functions' when 'T' then 'types'
                                              when 'n' then 'schemas' else d.defaclobjtype::text end,
                         ' in ' || n.nspname),
       'granted', d.defaclacl::text, 'error'
from control o
join pg_catalog.pg_default_acl d on d.defaclrole = o.oid
left join pg_catalog.pg_namespace n on n.oid = d.defaclnamespace
where d.defaclnamespace = 0
   or d.defaclnamespace in (select s.oid from schemas s)
