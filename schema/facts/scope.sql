-- The scope of the queries of this folder: our schemas, their objects, and our roles.
--
-- Each query is this list of CTEs and one other file after it; to run one by hand:
-- `cat schema/facts/scope.sql schema/facts/roles.sql | psql`. Each returns the schema that a fact belongs to (null: the
-- whole database), the object, the facet, its value, and the severity of a difference there:
--   error    it changes what can happen to payments, events or metadata, or who can read or write them
--   warning  it does not, but an operator should know
-- What a login without rights of ours can create is no fact. The same queries make the list that a build carries
-- (catalogue/*.txt) and read the database that is verified. They call functions of pg_catalog only and need no right
-- beyond connecting.
with recursive roles as (
  select r.oid, r.rolname, r.rolcanlogin, r.rolsuper, r.rolcreaterole, r.rolcreatedb, r.rolreplication, r.rolbypassrls
  from pg_catalog.pg_roles r
  where r.rolname in ('symphony_control', 'symphony_ingest', 'symphony_executor', 'symphony_operator', 'symphony_readonly',
                      'symphony_auditor', 'symphony_auth')
),
control as (
  select r.oid from roles r where r.rolname = 'symphony_control'
),
schemas as (
  select n.oid, n.nspname, n.nspowner, n.nspacl
  from pg_catalog.pg_namespace n
  where n.nspname = 'symphony'
     -- Another application may have a schema of this name. It is ours where our owner has anything in it.
     or n.nspname = 'm10_recovery'
        and exists (
          select from control o
          where n.nspowner = o.oid
             or exists (select from pg_catalog.pg_class c where c.relnamespace = n.oid and c.relowner = o.oid)
             or exists (select from pg_catalog.pg_proc p where p.pronamespace = n.oid and p.proowner = o.oid))
),
relations as (
  select c.*, s.nspname,
         format('%s %I.%I',
                case c.relkind when 'r' then 'table' when 'v' then 'view' when 'S' then 'sequence' when 'm' then 'materialized view'
                               when 'p' then 'partitioned table' when 'f' then 'foreign table' end,
                s.nspname, c.relname) as object,
         format('%I.%I', s.nspname, c.relname) as name
  from pg_catalog.pg_class c
  join schemas s on s.oid = c.relnamespace
  where c.relkind in ('r', 'v', 'S', 'm', 'p', 'f')
),
functions as (
  select p.*, s.nspname, format('function %I.%I(%s)', s.nspname, p.proname, pg_catalog.pg_get_function_identity_arguments(p.oid)) as object
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
)
