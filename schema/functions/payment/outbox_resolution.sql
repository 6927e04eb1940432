-- What a person last found out about a terminal failure, or null.
--
-- Locks: nothing; the caller holds the key's lock. For: redrive and resolve.
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
    order by o.created_at desc, o.operation_id desc
    limit 1);
end
$$;

comment on function symphony.outbox_resolution(uuid) is 'The last resolution of a terminal failure.';
