-- Schemas, tables, views and sequences, with their columns, constraints, indexes, triggers, rules and inheritance.
, search_indexes as (
  -- By participant, for searches: a partition of the ledger gets one some time after its end. Any other index is a fact.
  select x.indexrelid
  from pg_catalog.pg_index t
  join relations l on l.oid = t.indrelid and l.name = 'symphony.payment_outbox_attempts'
  join pg_catalog.pg_class ti on ti.oid = t.indexrelid and ti.relname = 'payment_outbox_attempts_one_terminal_per_outbox'
  join pg_catalog.pg_inherits h on h.inhparent = l.oid
  join relations r on r.oid = h.inhrelid
  join pg_catalog.pg_index x on x.indrelid = r.oid
  join pg_catalog.pg_class i on i.oid = x.indexrelid and i.relname = r.relname || '_by_participant'
  where x.indisvalid and x.indisready and x.indislive
    and pg_catalog.pg_get_indexdef(x.indexrelid) =
        format('CREATE INDEX %I ON %s USING btree (participant_id, outbox_id) WHERE %s', i.relname, r.name, pg_catalog.pg_get_expr(t.indpred, t.indrelid))
)
select s.nspname as schema, format('schema %I', s.nspname) as object, 'owner' as facet,
       pg_catalog.pg_get_userbyid(s.nspowner)::text as value, 'error' as severity
from schemas s
union all
select r.nspname, r.object, f.facet, f.value, f.severity
from relations r
left join pg_catalog.pg_class toast on toast.oid = r.reltoastrelid
left join pg_catalog.pg_am am on am.oid = r.relam
cross join lateral (values
  ('owner', pg_catalog.pg_get_userbyid(r.relowner)::text, 'error'),
  ('persistence', case r.relpersistence when 'p' then 'permanent' when 'u' then 'unlogged' else 'temporary' end, 'error'),
  ('options', case when r.relkind = 'v' then coalesce((select string_agg(o.o, ', ' order by o.o) from unnest(r.reloptions) as o (o)), 'none') end,
   'error'),
  ('row security', case when r.relrowsecurity or r.relforcerowsecurity then 'on' else 'off' end, 'error'),
  ('definition', case when r.relkind in ('v', 'm') then md5(regexp_replace(pg_catalog.pg_get_viewdef(r.oid), '\s+', ' ', 'g')) end, 'error'),
  ('access method', case when r.relkind in ('r', 'm') then am.amname::text end, 'warning'),
  ('replica identity', case when r.relkind in ('r', 'p') then
     case r.relreplident when 'd' then 'default' when 'n' then 'nothing' when 'f' then 'full' else 'index' end end, 'warning'),
  -- Storage is for the DBA to tune, with two exceptions: dead tuples that stay, and decoding that treats the table as a catalogue.
  ('autovacuum', case when r.relkind = 'r' then
     case when exists (
       select from (values (r.reloptions), (toast.reloptions)) as v (options)
       cross join lateral pg_catalog.pg_options_to_table(v.options) as o
       where o.option_name = 'autovacuum_enabled' and not o.option_value::boolean)
     then 'off' else 'on' end end, 'warning'),
  ('user catalog table', case when r.relkind = 'r' then
     coalesce((select case when o.option_value::boolean then 'yes' end
               from pg_catalog.pg_options_to_table(r.reloptions) as o where o.option_name = 'user_catalog_table'), 'no') end, 'warning')
) as f (facet, value, severity)
where f.value is not null
union all
select r.nspname, r.object, 'parameters',
       format('%s start %s increment %s from %s to %s cache %s%s', pg_catalog.format_type(q.seqtypid, null), q.seqstart, q.seqincrement,
              q.seqmin, q.seqmax, q.seqcache, case when q.seqcycle then ' cycle' else '' end), 'error'
from relations r
join pg_catalog.pg_sequence q on q.seqrelid = r.oid
union all
select r.nspname, format('column %s.%I', r.name, a.attname), 'definition',
       concat_ws(' ', pg_catalog.format_type(a.atttypid, a.atttypmod),
                 case when a.attcollation <> t.typcollation then 'collate ' || a.attcollation::regcollation end,
                 case when a.attnotnull then 'not null' end,
                 'default ' || pg_catalog.pg_get_expr(d.adbin, d.adrelid),
                 case when a.attidentity <> '' then 'identity' end, case when a.attgenerated <> '' then 'generated' end), 'error'
from relations r
join pg_catalog.pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped
join pg_catalog.pg_type t on t.oid = a.atttypid
left join pg_catalog.pg_attrdef d on d.adrelid = r.oid and d.adnum = a.attnum
union all
select r.nspname, format('constraint %I on %s', c.conname, r.name), 'definition',
       pg_catalog.pg_get_constraintdef(c.oid) || case when c.convalidated then '' else ' not valid' end, 'error'
from relations r
join pg_catalog.pg_constraint c on c.conrelid = r.oid and (c.contype <> 'n' or not c.convalidated)
union all
-- A foreign key of another schema refuses our DELETEs.
select r.nspname, format('foreign key %I of %s to %s', c.conname, c.conrelid::regclass, r.name), 'definition',
       pg_catalog.pg_get_constraintdef(c.oid), 'error'
from relations r
join pg_catalog.pg_constraint c on c.confrelid = r.oid and c.contype = 'f'
where c.conrelid not in (select o.oid from relations o)
union all
-- Without WITH (fillfactor = …) and the like, which are for the DBA to tune.
select r.nspname, format('index %I on %s', i.relname, r.name), 'definition',
       replace(pg_catalog.pg_get_indexdef(x.indexrelid),
               coalesce(' WITH (' || (select string_agg(o.option_name || '=' ||
                                        case when quote_ident(o.option_value) = o.option_value then o.option_value else quote_literal(o.option_value) end, ', ')
                                      from pg_catalog.pg_options_to_table(i.reloptions) as o) || ')', ''), '')
       || case when x.indisvalid and x.indisready and x.indislive then '' else ' invalid' end, 'error'
from relations r
join pg_catalog.pg_index x on x.indrelid = r.oid
join pg_catalog.pg_class i on i.oid = x.indexrelid
where x.indexrelid not in (select s.indexrelid from search_indexes s)
union all
select r.nspname, format('trigger %I on %s', t.tgname, r.name), 'definition',
       pg_catalog.pg_get_triggerdef(t.oid)
       || case t.tgenabled when 'A' then ' always' when 'O' then '' when 'R' then ' replica only' else ' disabled' end, 'error'
from relations r
join pg_catalog.pg_trigger t on t.tgrelid = r.oid
-- Triggers of constraints have generated names; only their enabled state can be changed.
where not t.tgisinternal or t.tgenabled <> 'O' and t.tgconstraint in (select c.oid from pg_catalog.pg_constraint c where c.conrelid = r.oid)
union all
select r.nspname, format('rule %I on %s', w.rulename, r.name), 'definition', md5(pg_catalog.pg_get_ruledef(w.oid)), 'error'
from relations r
join pg_catalog.pg_rewrite w on w.ev_class = r.oid and w.rulename <> '_RETURN'
union all
select r.nspname, format('policy %I on %s', p.polname, r.name), 'definition',
       concat_ws(' ', p.polcmd, 'using', pg_catalog.pg_get_expr(p.polqual, p.polrelid), 'check', pg_catalog.pg_get_expr(p.polwithcheck, p.polrelid)),
       'error'
from relations r
join pg_catalog.pg_policy p on p.polrelid = r.oid
union all
select r.nspname, format('child %s of %s', h.inhrelid::regclass, r.name), 'definition', 'inherits', 'error'
from relations r
join pg_catalog.pg_inherits h on h.inhparent = r.oid
union all
-- An UPDATE or DELETE of the parent reaches our rows without our statement-level triggers.
select r.nspname, format('parent %s of %s', h.inhparent::regclass, r.name), 'definition', 'inherits', 'error'
from relations r
join pg_catalog.pg_inherits h on h.inhrelid = r.oid
where h.inhparent not in (select o.oid from relations o)
union all
select r.nspname, format('statistics %s on %s', format('%I.%I', n.nspname, x.stxname), r.name), 'definition', x.stxkind::text, 'warning'
from relations r
join pg_catalog.pg_statistic_ext x on x.stxrelid = r.oid
join pg_catalog.pg_namespace n on n.oid = x.stxnamespace
