-- The partitions of the ledger: which tables they are, and that together they take every outbox.
--
-- Their owner, columns, indexes, triggers and rights are facts of relations.sql and rights.sql, as those of other tables.
-- Their number grows: the list that a build carries has one partition, `from_*`, and each partition of a database must be like it.
, partitions as (
  select h.inhrelid as oid, c.relname, c.relkind, c.relnamespace,
         pg_catalog.pg_get_expr(c.relpartbound, c.oid) as bound
  from relations r
  join pg_catalog.pg_inherits h on h.inhparent = r.oid
  join pg_catalog.pg_class c on c.oid = h.inhrelid
  where r.name = 'symphony.payment_outbox_attempts'
),
ranges as (
  select p.oid::regclass::text as partition, p.bound,
         substring(p.bound from 'FROM \(''?([0-9a-fA-F-]{36}|MINVALUE)''?\)') as lower,
         substring(p.bound from 'TO \(''?([0-9a-fA-F-]{36}|MAXVALUE)''?\)') as upper
  from partitions p
),
steps as (
  select g.*,
         case when g.lower = 'MINVALUE' then '' else g.lower end as place,
         lag(g.upper) over (order by case when g.lower = 'MINVALUE' then '' else g.lower end) as previous,
         lead(g.lower) over (order by case when g.lower = 'MINVALUE' then '' else g.lower end) as next
  from ranges g
)
select 'symphony'::name as schema, format('table symphony.%I', p.relname) as object, 'partition of' as facet,
       'symphony.payment_outbox_attempts' as value, 'error' as severity
from partitions p
join schemas s on s.oid = p.relnamespace and s.nspname = 'symphony'
where p.relkind = 'r'
  and p.relname ~ '^payment_outbox_attempts_from_(start|[0-9]{8})$'
  -- It is named by the day on which it starts.
  and case
        when p.bound like 'FOR VALUES FROM (MINVALUE)%' then p.relname = 'payment_outbox_attempts_from_start'
        else p.relname = 'payment_outbox_attempts_from_' || to_char(
          to_timestamp(('x' || translate(substring(p.bound from 'FROM \(''([0-9a-f-]{13})'), '-', ''))::bit(48)::bigint / 1000.0) at time zone 'UTC',
          'YYYYMMDD')
      end
union all
select r.nspname, format('ranges of %s', r.name), 'definition',
       coalesce((
         select string_agg(
                  case
                    when g.lower is null then format('%s takes %s', g.partition, g.bound)
                    when g.previous is null and g.lower <> 'MINVALUE' then format('nothing before %s', g.partition)
                    when g.upper <> 'MAXVALUE' and g.next is null then format('nothing after %s', g.partition)
                    else format('a gap after %s', g.partition)
                  end, ', ' order by g.place)
         from steps g
         where g.lower is null
            or g.previous is null and g.lower <> 'MINVALUE'
            or g.upper <> 'MAXVALUE' and g.next is distinct from g.upper),
         case when exists (select from steps) then 'from MINVALUE to MAXVALUE without a gap' else 'none' end),
       'error'
from relations r
where r.name = 'symphony.payment_outbox_attempts'
