-- Makes the leases that a worker still holds last longer, and says which those are.
--
-- Returns a row for each, in the order given, with the new expiry, or null where the lease is lost: then
-- the worker must drop the work, whose outcome is unknown. Each token speaks for itself: one that was
-- lost stays lost, though the same worker holds the row anew. A lease is never made shorter.
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
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  v_count   constant int := coalesce(cardinality(p_outbox_ids), 0);
  v_ids     uuid[];
  v_tokens  uuid[];
  v_expires timestamptz[];
begin
  perform check_argument('p_worker_id', p_worker_id, 200);
  perform check_range('p_lease_seconds', p_lease_seconds, 1, 3600);
  perform check_range('the number of leases', v_count, 1, 1000);
  if cardinality(p_lease_tokens) is distinct from v_count then
    raise exception 'p_outbox_ids and p_lease_tokens must have the same number of elements' using errcode = 'P7005';
  end if;

  with held as (
    select p.outbox_id
    from (
      select g.outbox_id, g.lease_token
      from unnest(p_outbox_ids, p_lease_tokens) as g (outbox_id, lease_token)
      order by g.outbox_id
      offset 0
    ) g
    cross join lateral (
      select p.outbox_id
      from payment_outbox_pending p
      where p.outbox_id = g.outbox_id
        and p.lease_token = g.lease_token
        and p.claimed_by = p_worker_id
        and p.lease_expires_at > now()
      for no key update
    ) p
  ),
  renewed as (
    update payment_outbox_pending p
    set lease_expires_at = greatest(p.lease_expires_at, now() + make_interval(secs => p_lease_seconds))
    where p.outbox_id = any (array(select h.outbox_id from held h))
    returning p.outbox_id, p.lease_token, p.lease_expires_at
  )
  select array_agg(r.outbox_id), array_agg(r.lease_token), array_agg(r.lease_expires_at)
  into v_ids, v_tokens, v_expires
  from renewed r;

  return query
    select g.outbox_id, r.lease_expires_at
    from unnest(p_outbox_ids, p_lease_tokens) with ordinality as g (outbox_id, lease_token, place)
    left join unnest(v_ids, v_tokens, v_expires) as r (outbox_id, lease_token, lease_expires_at)
      on r.outbox_id = g.outbox_id
     and r.lease_token = g.lease_token
    order by g.place;
end
$$;

comment on function symphony.renew_outbox_leases(uuid[], uuid[], text, int) is
  'Prolongs the leases that a worker still holds; a null expiry means that the lease is lost.';
