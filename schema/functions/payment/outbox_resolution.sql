-- Returns how operators have resolved a terminal failure; null if they have not.
--
-- Only NOT_PAID can be followed by another resolution, PAID or SKIPPED, so that one wins if it is there. The times do not
-- tell which came last: a transaction that began earlier may resolve later.
-- Locks: nothing; the caller holds the key's row. For: redrive_payment_outbox and resolve_payment_outbox.
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
    order by o.resolution = 'NOT_PAID'
    limit 1);
end
$$;

comment on function symphony.outbox_resolution(uuid) is 'The resolution of a terminal failure that applies.';
