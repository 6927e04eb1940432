-- Functions: what they take, return, run and may do.
select f.nspname as schema, f.object, x.facet, x.value, x.severity
from functions f
join pg_catalog.pg_language l on l.oid = f.prolang
cross join lateral (values
  ('owner', pg_catalog.pg_get_userbyid(f.proowner)::text, 'error'),
  ('arguments', pg_catalog.pg_get_function_arguments(f.oid), 'error'),
  ('result', coalesce(pg_catalog.pg_get_function_result(f.oid), 'none'), 'error'),
  ('properties', concat_ws(' ', l.lanname, case f.provolatile when 'i' then 'immutable' when 's' then 'stable' else 'volatile' end,
     case when f.prosecdef then 'security definer' else 'security invoker' end, case when f.proisstrict then 'strict' end,
     case when f.proleakproof then 'leakproof' end, case when f.prosupport <> 0 then 'support ' || f.prosupport::regproc end,
     case f.proparallel when 's' then 'parallel safe' when 'r' then 'parallel restricted' end,
     case f.prokind when 'p' then 'procedure' when 'a' then 'aggregate' when 'w' then 'window' end), 'error'),
  ('settings', coalesce((select string_agg(c.c, '; ' order by c.c) from unnest(f.proconfig) as c (c)), 'none'), 'error'),
  ('body', md5(f.prosrc || coalesce(f.probin, '') || case when f.prosqlbody is null then '' else 'parsed' end), 'error'),
  -- They choose a plan and nothing else.
  ('planner estimates', concat_ws(' ', 'cost', f.procost, case when f.proretset then 'rows' end, case when f.proretset then f.prorows end), 'warning')
) as x (facet, value, severity)
