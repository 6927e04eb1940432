-- Says which of these leases a worker holds, and locks their rows until the transaction ends.
--
-- A lease is held by the worker that it was granted to, with its token, until it expires. The answer is
-- by position, because one outbox may be given twice, with the token that holds and with one that was
-- lost. What is null is not held. pending_row is where the row is for as long as it is locked.
-- Locks: the rows it returns, in the order of their ids, whatever the order given, so that two callers never
-- wait for each other in a circle. For: complete, renew and release.
create or replace function symphony.hold_outbox_leases(p_outbox_ids uuid[], p_lease_tokens uuid[], p_worker_id text)
  returns table (place bigint, outbox_id uuid, pending_row tid)
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
#variable_conflict use_column
begin
  return query
    select g.place, p.outbox_id, p.pending_row
    from (
      select g.outbox_id, g.lease_token, g.place
      from unnest(p_outbox_ids, p_lease_tokens) with ordinality as g (outbox_id, lease_token, place)
      order by g.outbox_id, g.place
      offset 0
    ) g
    cross join lateral (
      select p.outbox_id, p.ctid as pending_row
      from payment_outbox_pending p
      where p.outbox_id = g.outbox_id
        and p.lease_token = g.lease_token
        and p.claimed_by = p_worker_id
        and p.lease_expires_at > now()
      for no key update
    ) p;
end
$$;

comment on function symphony.hold_outbox_leases(uuid[], uuid[], text) is 'Which of these leases a worker holds; locks their rows.';
