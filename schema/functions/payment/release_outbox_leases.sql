-- Gives back leases whose dispatch was never started: no attempt is used up and the ledger is not written.
--
-- Returns a row for each, in the order given, and whether it was given back; false means that the lease
-- was lost before. With a delay the rows are not due before it has passed: for a rail that is best left
-- alone for a while.
-- Locks: the rows it gives back, in the order of their ids. Raises: P7005. For: symphony_executor.
create or replace function symphony.release_outbox_leases(
  p_outbox_ids    uuid[],
  p_lease_tokens  uuid[],
  p_worker_id     text,
  p_delay_seconds int default null)
  returns table (outbox_id uuid, released boolean)
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set lock_timeout = '5s'
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  v_count    constant int := coalesce(cardinality(p_outbox_ids), 0);
  -- The positions whose lease is held.
  v_places   bigint[];
begin
  perform check_argument('p_worker_id', p_worker_id, 200);
  perform check_range('the number of leases', v_count, 1, 1000);
  perform check_range('p_delay_seconds', coalesce(p_delay_seconds, 0), 0, 2592000);
  if cardinality(p_lease_tokens) is distinct from v_count then
    raise exception 'p_outbox_ids and p_lease_tokens must have the same number of elements' using errcode = 'P7005';
  end if;

  with held as materialized (
    select h.place, h.outbox_id
    from hold_outbox_leases(p_outbox_ids, p_lease_tokens, p_worker_id) h
  ),
  released as (
    update payment_outbox_pending p
    set claimed_by = null,
        claimed_at = null,
        lease_token = null,
        lease_expires_at = null,
        next_attempt_at = coalesce(now() + make_interval(secs => p_delay_seconds), p.next_attempt_at)
    where p.outbox_id = any (array(select h.outbox_id from held h))
    returning p.outbox_id
  )
  select array_agg(h.place)
  into v_places
  from held h
  join released r on r.outbox_id = h.outbox_id;
  if v_places is not null then
    perform wake_sleepers('outbox_pending');
  end if;

  return query
    select g.outbox_id, coalesce(g.place = any (v_places), false)
    from unnest(p_outbox_ids) with ordinality as g (outbox_id, place)
    order by g.place;
end
$$;

comment on function symphony.release_outbox_leases(uuid[], uuid[], text, int) is
  'Gives back leases whose dispatch was never started, without using up an attempt.';
