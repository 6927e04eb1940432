-- Gives back leases whose dispatch was never started: no attempt is used up and the ledger is not written.
--
-- Returns a row for each, in the order given, and whether it was given back; false means that the lease
-- was lost before. Each token speaks for itself. With a delay the rows are not due before it has passed:
-- for a rail that is best left alone for a while.
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
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  v_count    constant int := coalesce(cardinality(p_outbox_ids), 0);
  v_ids      uuid[];
  v_tokens   uuid[];
begin
  perform check_argument('p_worker_id', p_worker_id, 200);
  perform check_range('the number of leases', v_count, 1, 1000);
  perform check_range('p_delay_seconds', coalesce(p_delay_seconds, 0), 0, 2592000);
  if cardinality(p_lease_tokens) is distinct from v_count then
    raise exception 'p_outbox_ids and p_lease_tokens must have the same number of elements' using errcode = 'P7005';
  end if;

  with held as (
    select p.outbox_id, p.lease_token
    from (
      select g.outbox_id, g.lease_token
      from unnest(p_outbox_ids, p_lease_tokens) as g (outbox_id, lease_token)
      order by g.outbox_id
      offset 0
    ) g
    cross join lateral (
      select p.outbox_id, p.lease_token
      from payment_outbox_pending p
      where p.outbox_id = g.outbox_id
        and p.lease_token = g.lease_token
        and p.claimed_by = p_worker_id
        and p.lease_expires_at > now()
      for no key update
    ) p
  ),
  released as (
    update payment_outbox_pending p
    set claimed_by = null,
        claimed_at = null,
        lease_token = null,
        lease_expires_at = null,
        next_attempt_at = coalesce(now() + make_interval(secs => p_delay_seconds), p.next_attempt_at)
    where p.outbox_id = any (array(select h.outbox_id from held h))
  )
  select array_agg(h.outbox_id), array_agg(h.lease_token)
  into v_ids, v_tokens
  from held h;

  return query
    select g.outbox_id,
           exists (
             select from unnest(v_ids, v_tokens) as r (outbox_id, lease_token)
             where r.outbox_id = g.outbox_id
               and r.lease_token = g.lease_token)
    from unnest(p_outbox_ids, p_lease_tokens) with ordinality as g (outbox_id, lease_token, place)
    order by g.place;
end
$$;

comment on function symphony.release_outbox_leases(uuid[], uuid[], text, int) is
  'Gives back leases whose dispatch was never started, without using up an attempt.';
