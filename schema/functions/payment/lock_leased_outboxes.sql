-- Locks the rows whose lease this worker holds, and returns them. The others are not returned.
--
-- A worker holds a lease from its claim until the lease expires, and proves it by the lease token. The result has the
-- position of each argument, because one outbox may be given twice, with a current token and with a lost one. A null
-- is never held. pending_row is the row's ctid, valid while it is locked.
--
-- complete_outbox_batch and record_terminal_attempts check the same conditions in a DELETE, which locks the rows itself.
-- A test compares the texts.
-- Locks: the rows it returns, in the order of their ids, so that two callers never deadlock.
-- For: complete_outbox_batch, renew_outbox_leases and release_outbox_leases.
create or replace function symphony.lock_leased_outboxes(p_outbox_ids uuid[], p_lease_tokens uuid[], p_worker_id text)
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

comment on function symphony.lock_leased_outboxes(uuid[], uuid[], text) is
  'Which of these leases a worker holds; locks their rows.';
