-- Objects outside our schemas that affect them: replication, event triggers, and objects that read or write our tables.
, outside as (
  -- Views, materialized views, and tables with rules. They access our tables with the privileges of their owner.
  select w.ev_class, r.nspname, w.ev_type,
         pg_catalog.has_any_column_privilege(c.relowner, r.oid, 'SELECT') as reads,
         pg_catalog.has_table_privilege(c.relowner, r.oid, 'INSERT, UPDATE, DELETE, TRUNCATE') as writes
  from relations r
  join pg_catalog.pg_depend d on d.refclassid = 'pg_catalog.pg_class'::regclass and d.refobjid = r.oid
                             and d.classid = 'pg_catalog.pg_rewrite'::regclass
  join pg_catalog.pg_rewrite w on w.oid = d.objid
  join pg_catalog.pg_class c on c.oid = w.ev_class
  where r.relkind <> 'S'
    and c.relnamespace not in (select s.oid from schemas s)
    and not exists (select from pg_catalog.pg_options_to_table(c.reloptions) as o where o.option_name = 'security_invoker' and o.option_value::boolean)
),
definers as materialized (
  select p.oid, p.proowner, lower(p.prosrc) as body, lower(concat(p.prosrc, p.proconfig::text)) as text
  from pg_catalog.pg_proc p
  where p.prosecdef
    and p.oid >= 16384
    and p.pronamespace not in (select s.oid from schemas s)
    and p.proowner not in (select o.oid from control o)
),
-- The tables that the owners of these functions can access.
reach as materialized (
  select d.proowner, r.oid, r.nspname, r.relname
  from (select distinct f.proowner from definers f) as d
  join relations r on r.relkind in ('r', 'p', 'v', 'm')
                  and pg_catalog.has_table_privilege(d.proowner, r.oid, 'SELECT, INSERT, UPDATE, DELETE')
)
-- Our owner must own nothing outside our schemas.
select null::name as schema, format('%s %s owned by symphony_control', i.type, i.identity) as object, 'definition' as facet, 'exists' as value,
       'error' as severity
from control o
join pg_catalog.pg_shdepend d on d.refclassid = 'pg_catalog.pg_authid'::regclass and d.refobjid = o.oid and d.deptype = 'o'
join pg_catalog.pg_database b on b.oid = d.dbid and b.datname = current_database()
cross join lateral pg_catalog.pg_identify_object(d.classid, d.objid, d.objsubid) as i
where i.identity is not null
  and coalesce(i.schema, '') not in (select s.nspname from schemas s)
  and not (d.classid = 'pg_catalog.pg_namespace'::regclass and d.objid in (select s.oid from schemas s))
  and d.classid not in ('pg_catalog.pg_default_acl'::regclass, 'pg_catalog.pg_publication'::regclass, 'pg_catalog.pg_subscription'::regclass,
                        'pg_catalog.pg_event_trigger'::regclass, 'pg_catalog.pg_statistic_ext'::regclass)
union all
select x.nspname, format('%s %s on our tables', case c.relkind when 'v' then 'view' when 'm' then 'materialized view' else 'rules of table' end, c.oid::regclass),
       'definition', 'exists',
       case when bool_or(x.writes) and (
                   bool_or(x.ev_type <> '1')
                   or exists (select from pg_catalog.aclexplode(c.relacl) e
                              where e.grantee <> c.relowner and e.privilege_type in ('INSERT', 'UPDATE', 'DELETE')))
            then 'error' else 'warning' end
from outside x
join pg_catalog.pg_class c on c.oid = x.ev_class
where (x.reads or x.writes)
  and c.relowner not in (select o.oid from control o)
group by x.nspname, c.oid, c.relkind, c.relacl, c.relowner
union all
-- PostgreSQL records no dependencies of a function's body, so search its words.
select r.nspname, format('security definer function %s on our tables', f.oid::regprocedure), 'definition', 'exists', 'warning'
from definers f
join reach r on r.proowner = f.proowner
-- The substring search comes first: it is far cheaper than the word search, and seldom matches.
where strpos(f.body, r.relname) > 0
      and r.relname ~ '^[a-z0-9_]+$'
      and f.body ~ ('\m' || r.relname || '\M')
      and f.text ~ ('\m' || r.nspname || '\M')
   or exists (select from pg_catalog.pg_depend d
              where d.classid = 'pg_catalog.pg_proc'::regclass and d.objid = f.oid
                and d.refclassid = 'pg_catalog.pg_class'::regclass and d.refobjid = r.oid)
group by r.nspname, f.oid
union all
-- Only superusers and our owner can publish: a reader of the stream reads our rows.
select null, format('publication %I', p.pubname), 'definition', 'exists', 'warning'
from pg_catalog.pg_publication p
where p.puballtables
   or exists (select from pg_catalog.pg_publication_rel t where t.prpubid = p.oid and t.prrelid in (select r.oid from relations r))
   or exists (select from pg_catalog.pg_publication_namespace t where t.pnpubid = p.oid and t.pnnspid in (select s.oid from schemas s))
union all
-- A subscription writes without our functions and without statement-level triggers, if its owner may write.
select r.nspname, format('subscription %I to %s', s.subname, r.name), 'definition', 'exists', 'error'
from pg_catalog.pg_subscription s
join pg_catalog.pg_subscription_rel t on t.srsubid = s.oid
join relations r on r.oid = t.srrelid
where pg_catalog.has_table_privilege(s.subowner, r.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')
   or pg_catalog.pg_has_role(s.subowner, r.relowner, 'MEMBER')
union all
-- Only a superuser can create an event trigger. Its code runs as the role that changes the schema, an installer included.
select null, format('event trigger %I', e.evtname), 'definition', format('on %s: %s', e.evtevent, e.evtfoid::regproc),
       case when o.rolsuper then 'warning' else 'error' end
from pg_catalog.pg_event_trigger e
join pg_catalog.pg_roles o on o.oid = e.evtowner
where e.evtenabled <> 'D'
