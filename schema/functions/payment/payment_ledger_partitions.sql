-- Lists the partitions of the ledger, with their bounds as times of enqueue. A null bound is open.
--
-- is_detaching is true for a partition whose DETACH CONCURRENTLY was interrupted: statements no longer read or write it.
-- A function and not a view: an install locks views, and with them the tables of PostgreSQL's catalogue that they read.
-- Locks: nothing. Raises: nothing. For: symphony_executor, symphony_operator, symphony_readonly, symphony_auditor.
create or replace function symphony.payment_ledger_partitions()
  returns table (
    partition_name text,
    from_id        uuid,
    to_id          uuid,
    starts_at      timestamptz,
    ends_at        timestamptz,
    is_searchable  boolean,
    is_detaching   boolean)
  language plpgsql
  stable
  set search_path = pg_catalog, symphony, pg_temp
  set jit = off
as $$
begin
  return query
    select c.relname::text,
           b.from_id,
           b.to_id,
           to_timestamp(('x' || translate(left(b.from_id::text, 13), '-', ''))::bit(48)::bigint / 1000.0),
           to_timestamp(('x' || translate(left(b.to_id::text, 13), '-', ''))::bit(48)::bigint / 1000.0),
           exists (
             select
             from pg_index x
             where x.indexrelid = to_regclass(format('symphony.%I', c.relname || '_by_participant'))
               and x.indrelid = c.oid
               and x.indisvalid),
           h.inhdetachpending
    from pg_inherits h
    join pg_class c on c.oid = h.inhrelid
    cross join lateral (select pg_get_expr(c.relpartbound, c.oid) as bound offset 0) e
    cross join lateral (
      select substring(e.bound from 'FROM \(''([0-9a-f-]{36})''\)')::uuid as from_id,
             substring(e.bound from 'TO \(''([0-9a-f-]{36})''\)')::uuid as to_id
      offset 0
    ) b
    where h.inhparent = 'symphony.payment_outbox_attempts'::regclass;
end
$$;

comment on function symphony.payment_ledger_partitions() is
  'The partitions of the ledger: the times of enqueue that each holds, and whether searches by participant have an index there.';
