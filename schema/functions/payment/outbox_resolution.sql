-- What people found out about a terminal failure, or null.
--
-- A resolution is only ever corrected from NOT_PAID to PAID, so PAID stands wherever it was said. The times
-- would not tell which came last: they are of the beginning of transactions, and one that began before
-- another may resolve after it.
-- Locks: nothing; the caller holds the row of the key. For: redrive and resolve.
create or replace function symphony.outbox_resolution(p_outbox_id uuid)
  returns text
  language plpgsql
  stable
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  return (
    select o.resolution
    from payment_outbox_operations o
    where o.outbox_id = p_outbox_id
      and o.operation = 'RESOLVE'
    order by (o.resolution = 'PAID') desc
    limit 1);
end
$$;

comment on function symphony.outbox_resolution(uuid) is 'The resolution of a terminal failure that stands.';
