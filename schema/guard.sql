-- Refuses a database in which an untrusted role's code would run with the rights of the caller.
--
-- SET ROLE is no sandbox: a view, trigger, function, type, operator or rule that an untrusted role has put into our
-- schemas runs as the role that uses it, and may RESET ROLE to become the login that connected. So before anything in
-- these schemas is read or called, this block checks the owners in the catalogue. It calls built-in functions only, none
-- of which evaluates an expression, a view or an output function of a user.
--
-- symphony_control and superusers are trusted; every other role is not. Once this has passed, only a trusted role can
-- add objects, so the result stays valid while the schemas are used. Schema m10_recovery is ours only if
-- symphony_control owns it: a contract fixes the name, and another application may use it.
--
-- Needs search_path = pg_catalog, pg_temp. Locks: nothing. Raises: 55000. For: every command.
do $guard$
declare
  v_found text[];
begin
  -- Compiling this query would take a second, and running it takes a few milliseconds.
  perform pg_catalog.set_config('jit', 'off', true);
  with trusted as materialized (
    select r.oid
    from pg_catalog.pg_roles r
    where r.rolsuper or r.rolname = 'symphony_control'
  ),
  schemas as materialized (
    select n.oid, n.nspname, n.nspowner, n.nspacl
    from pg_catalog.pg_namespace n
    where n.nspname = 'symphony'
       or n.nspname = 'm10_recovery'
          and n.nspowner = (select r.oid from pg_catalog.pg_roles r where r.rolname = 'symphony_control')
  ),
  -- Everything that lives in a schema and has an owner.
  objects (classid, objid, owner) as materialized (
    select 'pg_namespace'::regclass::oid, s.oid, s.nspowner from schemas s
    union all
    select 'pg_class'::regclass::oid, c.oid, c.relowner from pg_catalog.pg_class c join schemas s on s.oid = c.relnamespace
    union all
    select 'pg_proc'::regclass::oid, p.oid, p.proowner from pg_catalog.pg_proc p join schemas s on s.oid = p.pronamespace
    union all
    -- Without row types and arrays: those are always owned with the relation or the type that they came with.
    select 'pg_type'::regclass::oid, t.oid, t.typowner from pg_catalog.pg_type t join schemas s on s.oid = t.typnamespace
    where t.typrelid = 0 and not exists (select from pg_catalog.pg_type e where e.typarray = t.oid)
    union all
    select 'pg_operator'::regclass::oid, o.oid, o.oprowner from pg_catalog.pg_operator o join schemas s on s.oid = o.oprnamespace
    union all
    select 'pg_opclass'::regclass::oid, o.oid, o.opcowner from pg_catalog.pg_opclass o join schemas s on s.oid = o.opcnamespace
    union all
    select 'pg_opfamily'::regclass::oid, o.oid, o.opfowner from pg_catalog.pg_opfamily o join schemas s on s.oid = o.opfnamespace
    union all
    select 'pg_collation'::regclass::oid, c.oid, c.collowner from pg_catalog.pg_collation c join schemas s on s.oid = c.collnamespace
    union all
    select 'pg_conversion'::regclass::oid, c.oid, c.conowner from pg_catalog.pg_conversion c join schemas s on s.oid = c.connamespace
    union all
    select 'pg_statistic_ext'::regclass::oid, x.oid, x.stxowner from pg_catalog.pg_statistic_ext x join schemas s on s.oid = x.stxnamespace
    union all
    select 'pg_ts_config'::regclass::oid, c.oid, c.cfgowner from pg_catalog.pg_ts_config c join schemas s on s.oid = c.cfgnamespace
    union all
    select 'pg_ts_dict'::regclass::oid, d.oid, d.dictowner from pg_catalog.pg_ts_dict d join schemas s on s.oid = d.dictnamespace
    union all
    select 'pg_extension'::regclass::oid, e.oid, e.extowner from pg_catalog.pg_extension e join schemas s on s.oid = e.extnamespace
  ),
  relations as materialized (
    select o.objid as oid from objects o where o.classid = 'pg_class'::regclass
  ),
  -- The objects, and what hangs on them without an owner of its own: each may name a function, type, operator or relation.
  parts (classid, objid) as (
    select o.classid, o.objid from objects o
    union all
    select 'pg_rewrite'::regclass::oid, w.oid from pg_catalog.pg_rewrite w join relations r on r.oid = w.ev_class
    union all
    select 'pg_trigger'::regclass::oid, t.oid from pg_catalog.pg_trigger t join relations r on r.oid = t.tgrelid
    union all
    select 'pg_policy'::regclass::oid, p.oid from pg_catalog.pg_policy p join relations r on r.oid = p.polrelid
    union all
    select 'pg_attrdef'::regclass::oid, d.oid from pg_catalog.pg_attrdef d join relations r on r.oid = d.adrelid
    union all
    select 'pg_constraint'::regclass::oid, c.oid from pg_catalog.pg_constraint c join schemas s on s.oid = c.connamespace
  ),
  findings (place, finding) as (
    select case when o.classid = 'pg_namespace'::regclass then 0 else 1 end,
           format('%s belongs to %I', pg_catalog.pg_describe_object(o.classid, o.objid, 0), pg_catalog.pg_get_userbyid(o.owner))
    from objects o
    where o.owner not in (select t.oid from trusted t)
    union all
    select 2, format('%s may create objects in schema %I', coalesce(quote_ident(g.rolname::text), 'PUBLIC'), s.nspname)
    from schemas s
    cross join lateral pg_catalog.aclexplode(s.nspacl) e
    left join pg_catalog.pg_roles g on g.oid = e.grantee
    where e.privilege_type = 'CREATE'
      and e.grantee not in (select t.oid from trusted t)
    union all
    select distinct 3, format('%s uses %s, which belongs to %I', pg_catalog.pg_describe_object(p.classid, p.objid, 0),
                              pg_catalog.pg_describe_object(d.refclassid, d.refobjid, 0), pg_catalog.pg_get_userbyid(u.owner))
    from parts p
    -- OFFSET keeps it a look-up by key for each part, whatever the planner thinks of the catalogue's size.
    cross join lateral (
      select d.refclassid, d.refobjid from pg_catalog.pg_depend d where d.classid = p.classid and d.objid = p.objid offset 0
    ) d
    cross join lateral (
      select case d.refclassid
               when 'pg_proc'::regclass then (select f.proowner from pg_catalog.pg_proc f where f.oid = d.refobjid)
               when 'pg_class'::regclass then (select c.relowner from pg_catalog.pg_class c where c.oid = d.refobjid)
               when 'pg_type'::regclass then (select t.typowner from pg_catalog.pg_type t where t.oid = d.refobjid)
               when 'pg_operator'::regclass then (select o.oprowner from pg_catalog.pg_operator o where o.oid = d.refobjid)
               when 'pg_opclass'::regclass then (select o.opcowner from pg_catalog.pg_opclass o where o.oid = d.refobjid)
             end as owner
    ) u
    where u.owner not in (select t.oid from trusted t)
      and (d.refclassid, d.refobjid) not in (select o.classid, o.objid from objects o)
      and not (d.refclassid = 'pg_type'::regclass
               and exists (select from pg_catalog.pg_type t join schemas s on s.oid = t.typnamespace where t.oid = d.refobjid))
  )
  -- The untrusted role chooses these names: they must not contain terminal control characters.
  select array_agg(regexp_replace(f.finding, '[^ -~]', '?', 'g') order by f.place, f.finding collate "C") into v_found from findings f;

  if v_found is not null then
    raise exception 'an untrusted role can run code in the schemas of Symphony: %', v_found[1]
      using errcode = '55000',
            detail = array_to_string(v_found[1:20], '; ')
                     || case when cardinality(v_found) > 20 then format('; and %s more', cardinality(v_found) - 20) else '' end,
            hint = 'Nothing there was read or called: it would have run with your rights. Everything in schema symphony must belong '
                   'to symphony_control or a superuser. Ask the owner why it is there; then let a superuser drop it by name, '
                   'revoke the right to create, or install Symphony into another database.';
  end if;
end
$guard$;
