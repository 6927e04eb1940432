-- Releases leases whose dispatch never started: it uses up no attempt and does not write the ledger.
--
-- Returns one row per lease, in the order given; released is false if the lease was lost before. With p_delay_seconds
-- the rows are not due before the delay has passed, for a rail whose circuit breaker is open.
-- Locks: the rows it releases, in the order of their ids. Raises: P7005. For: symphony_executor.
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
  -- The positions whose lease the worker holds.
  v_places   bigint[];
begin
  perform check_argument('p_worker_id', p_worker_id, 200);
  perform check_range('the number of leases', v_count, 1, 1000);
  perform check_range('p_delay_seconds', coalesce(p_delay_seconds, 0), 0, 2592000);
  if cardinality(p_lease_tokens) is distinct from v_count then
    raise exception 'p_outbox_ids and p_lease_tokens must have the same number of elements' using errcode = 'P7005';
  end if;

  with leased as materialized (
    select l.place, l.outbox_id
    from lock_leased_outboxes(p_outbox_ids, p_lease_tokens, p_worker_id) l
  ),
  released as (
    update payment_outbox_pending p
    set claimed_by = null,
        claimed_at = null,
        lease_token = null,
        lease_expires_at = null,
        claimed_endpoint = null,
        next_attempt_at = coalesce(now() + make_interval(secs => p_delay_seconds), p.next_attempt_at)
    where p.outbox_id = any (array(select l.outbox_id from leased l))
    returning p.outbox_id
  )
  select array_agg(l.place)
  into v_places
  from leased l
  join released r on r.outbox_id = l.outbox_id;
  if v_places is not null then
    perform notify_idle_relayers('outbox_pending');
  end if;

  return query
    select g.outbox_id, coalesce(g.place = any (v_places), false)
    from unnest(p_outbox_ids) with ordinality as g (outbox_id, place)
    order by g.place;
end
$$;

comment on function symphony.release_outbox_leases(uuid[], uuid[], text, int) is
  'Releases leases whose dispatch never started, without using up an attempt.';
