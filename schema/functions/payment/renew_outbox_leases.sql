-- Renews the leases that a worker still holds, and says which are lost.
--
-- Returns one row per lease, in the order given, with the new expiry; null means that the lease is lost. The worker
-- must then drop the work, whose outcome is unknown. A renewal never makes a lease shorter.
-- Locks: the rows it renews, in the order of their ids. Raises: P7005. For: symphony_executor.
create or replace function symphony.renew_outbox_leases(
  p_outbox_ids    uuid[],
  p_lease_tokens  uuid[],
  p_worker_id     text,
  p_lease_seconds int)
  returns table (outbox_id uuid, lease_expires_at timestamptz)
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
  v_count   constant int := coalesce(cardinality(p_outbox_ids), 0);
  -- The positions whose lease the worker holds, and the new expiry.
  v_places  bigint[];
  v_expires timestamptz[];
begin
  perform check_argument('p_worker_id', p_worker_id, 200);
  perform check_range('p_lease_seconds', p_lease_seconds, 1, 3600);
  perform check_range('the number of leases', v_count, 1, 1000);
  if cardinality(p_lease_tokens) is distinct from v_count then
    raise exception 'p_outbox_ids and p_lease_tokens must have the same number of elements' using errcode = 'P7005';
  end if;

  with leased as materialized (
    select l.place, l.outbox_id
    from lock_leased_outboxes(p_outbox_ids, p_lease_tokens, p_worker_id) l
  ),
  renewed as (
    update payment_outbox_pending p
    set lease_expires_at = greatest(p.lease_expires_at, now() + make_interval(secs => p_lease_seconds))
    where p.outbox_id = any (array(select l.outbox_id from leased l))
      -- By the clock, because the transaction may have begun long ago: another lease may use the capacity by now.
      and p.lease_expires_at > clock_timestamp()
    returning p.outbox_id, p.lease_expires_at
  )
  select array_agg(l.place), array_agg(r.lease_expires_at)
  into v_places, v_expires
  from leased l
  join renewed r on r.outbox_id = l.outbox_id;

  return query
    select g.outbox_id, r.lease_expires_at
    from unnest(p_outbox_ids) with ordinality as g (outbox_id, place)
    left join unnest(v_places, v_expires) as r (place, lease_expires_at) on r.place = g.place
    order by g.place;
end
$$;

comment on function symphony.renew_outbox_leases(uuid[], uuid[], text, int) is
  'Renews the leases that a worker still holds; a null expiry means that the lease is lost.';
