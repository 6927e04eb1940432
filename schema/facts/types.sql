-- Types, and what gives an expression another meaning: operators, casts, collations and the like.
--
-- Our functions have symphony in their search_path, behind pg_catalog: an operator in either that takes one of our
-- types is preferred to the one for its base type.
select t.nspname as schema, t.object, f.facet, f.value, 'error' as severity
from types t
left join pg_catalog.pg_type b on b.oid = t.typbasetype
cross join lateral (values
  ('owner', pg_catalog.pg_get_userbyid(t.typowner)::text),
  ('definition', case t.typtype
     when 'e' then coalesce((select string_agg(e.enumlabel, ', ' order by e.enumsortorder) from pg_catalog.pg_enum e where e.enumtypid = t.oid), 'none')
     when 'd' then concat_ws(' ', pg_catalog.format_type(t.typbasetype, t.typtypmod),
                             case when t.typcollation <> b.typcollation then 'collate ' || t.typcollation::regcollation end,
                             case when t.typnotnull then 'not null' end, 'default ' || t.typdefault)
     else t.typtype::text end)
) as f (facet, value)
union all
select t.nspname, format('constraint %I on %s', c.conname, t.object), 'definition',
       pg_catalog.pg_get_constraintdef(c.oid) || case when c.convalidated then '' else ' not valid' end, 'error'
from types t
join pg_catalog.pg_constraint c on c.contypid = t.oid and c.contype <> 'n'
union all
select s.nspname, format('operator %s', o.oid::regoperator), 'definition', o.oprcode::regproc::text, 'error'
from pg_catalog.pg_operator o
join schemas s on s.oid = o.oprnamespace
union all
select n.nspname, format('operator class %I.%I', n.nspname, o.opcname), 'definition', pg_catalog.format_type(o.opcintype, null), 'error'
from pg_catalog.pg_opclass o
join pg_catalog.pg_namespace n on n.oid = o.opcnamespace
where o.opcnamespace in (select s.oid from schemas s)
   or o.opcintype in (select t.oid from types t)
union all
-- A class without a family of its own name makes one.
select s.nspname, format('operator family %I.%I', s.nspname, f.opfname), 'definition', 'exists', 'error'
from pg_catalog.pg_opfamily f
join schemas s on s.oid = f.opfnamespace
where not exists (select from pg_catalog.pg_opclass o where o.opcfamily = f.oid)
union all
select s.nspname, format('collation %I.%I', s.nspname, c.collname), 'definition', c.collprovider::text, 'error'
from pg_catalog.pg_collation c
join schemas s on s.oid = c.collnamespace
union all
select s.nspname, format('conversion %I.%I', s.nspname, c.conname), 'definition', c.conproc::regproc::text, 'error'
from pg_catalog.pg_conversion c
join schemas s on s.oid = c.connamespace
union all
select s.nspname, format('text search %s %I.%I', o.kind, s.nspname, o.name), 'definition', 'exists', 'error'
from schemas s
join (
  select 'configuration' as kind, c.cfgnamespace as schema, c.cfgname as name from pg_catalog.pg_ts_config c
  union all
  select 'dictionary', d.dictnamespace, d.dictname from pg_catalog.pg_ts_dict d
  union all
  select 'parser', p.prsnamespace, p.prsname from pg_catalog.pg_ts_parser p
  union all
  select 'template', t.tmplnamespace, t.tmplname from pg_catalog.pg_ts_template t
) as o on o.schema = s.oid
union all
-- The owner of a type may cast it to another. A cast to a type of an untrusted role affects the expressions of that role only.
select t.nspname, format('cast from %s to %s', pg_catalog.format_type(c.castsource, null), pg_catalog.format_type(c.casttarget, null)), 'definition',
       case c.castcontext when 'i' then 'implicit' when 'a' then 'assignment' else 'explicit' end, 'error'
from types t
join pg_catalog.pg_cast c on t.oid = c.castsource or t.oid = c.casttarget and c.castsource not in (select o.oid from types o)
join pg_catalog.pg_type other on other.oid = case when t.oid = c.castsource then c.casttarget else c.castsource end
join pg_catalog.pg_roles owner on owner.oid = other.typowner
where owner.rolsuper
   or owner.oid in (select o.oid from control o)
union all
select t.nspname, format('transform for %s', t.object), 'definition', 'exists', 'error'
from types t
join pg_catalog.pg_transform x on x.trftype = t.oid
union all
-- 16384 is the first number of an object that was not there after initdb.
select null, format('cast from %s to %s', pg_catalog.format_type(c.castsource, null), pg_catalog.format_type(c.casttarget, null)), 'definition',
       case c.castcontext when 'i' then 'implicit' else 'assignment' end, 'warning'
from pg_catalog.pg_cast c
where c.oid >= 16384
  and c.castsource < 16384
  and c.casttarget < 16384
  and c.castcontext <> 'e'
union all
select null, format('%s in pg_catalog', o.name), 'definition', 'exists', o.severity
from (
  select format('function %s', p.oid::regprocedure) as name, 'pg_catalog.pg_proc'::regclass as class, p.oid,
         case when exists (select from types t where t.oid = any (p.proargtypes)) then 'error' else 'warning' end as severity
  from pg_catalog.pg_proc p
  where p.pronamespace = 'pg_catalog'::regnamespace and p.oid >= 16384
  union all
  select format('operator %s', p.oid::regoperator), 'pg_catalog.pg_operator'::regclass, p.oid,
         case when exists (select from types t where t.oid in (p.oprleft, p.oprright)) then 'error' else 'warning' end
  from pg_catalog.pg_operator p
  where p.oprnamespace = 'pg_catalog'::regnamespace and p.oid >= 16384
) as o
where not exists (
  select from pg_catalog.pg_depend d where d.classid = o.class and d.objid = o.oid and d.deptype = 'e')
