-- Tells the worker that holds an instruction of unknown outcome what the rail's policy allows.
--
-- on_unknown is the policy for a rail that offers no inquiry or does not answer it. key_remembered says whether the
-- rail still knows the idempotency key. It counts from the first lease under which the key may have been sent,
-- redriven outboxes of the same key included, and includes p_sending_seconds for one more dispatch. Only while the key
-- is remembered does "never seen" mean never paid, and only then does the rail deduplicate a repeat. An outbox of an
-- earlier epoch may have been sent by an attempt that this database has lost, so it counts from its enqueue.
--
-- endpoint is where the worker sends to, as its claim said. other_endpoint is where an earlier attempt with an unknown outcome,
-- or of an earlier epoch, went, if that is another endpoint: see endpoint_of_unknown_outcome. If it is not null, the bank that
-- may have paid is not the one that the worker reaches: the worker neither inquires nor sends, and records FAILED with
-- OUTCOME_UNKNOWN.
--
-- awaiting_confirmation is true once the rail has accepted the outbox. Then the worker only inquires and never sends, whatever the
-- policy and the inquiry say: "never seen" contradicts the acceptance, and is FAILED with OUTCOME_UNKNOWN. The acceptance of an earlier outbox
-- that this one redrives does not count: an operator has found out that it was not paid.
-- Locks: nothing. Raises: P7002, P7005. For: symphony_executor.
create or replace function symphony.advise_on_unknown_outcome(
  p_outbox_id       uuid,
  p_lease_token     uuid,
  p_worker_id       text,
  p_sending_seconds int,
  out on_unknown     text,
  out key_remembered boolean,
  out endpoint       text,
  out other_endpoint text,
  out awaiting_confirmation boolean)
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  v_row payment_outbox_pending;
begin
  perform check_argument('p_worker_id', p_worker_id, 200);
  perform check_range('p_sending_seconds', p_sending_seconds, 0, 3600);

  select p.*
  into v_row
  from payment_outbox_pending p
  where p.outbox_id = p_outbox_id
    and p.lease_token = p_lease_token
    and p.claimed_by = p_worker_id
    and p.lease_expires_at > clock_timestamp();
  if v_row.outbox_id is null then
    raise exception 'worker % does not hold the lease on outbox %', p_worker_id, p_outbox_id
      using errcode = 'P7002',
            hint = 'Drop the work and do not complete it again: the lease has expired, was released or was taken over.';
  end if;

  endpoint := coalesce(v_row.claimed_endpoint, 'unnamed');
  other_endpoint := endpoint_of_unknown_outcome(v_row.outbox_id, v_row.rail_type, endpoint);
  awaiting_confirmation := exists (
    select
    from payment_outbox_attempts a
    where a.outbox_id = v_row.outbox_id
      and a.error_code = 'AWAITING_CONFIRMATION');

  select r.on_unknown,
         r.key_memory_seconds is null
         or coalesce(
              clock_timestamp() + make_interval(secs => p_sending_seconds) < f.first_claimed_at + make_interval(secs => r.key_memory_seconds),
              true)
  into strict on_unknown, key_remembered
  from payment_rails r
  cross join lateral (
    with recursive redrives as (
      select v_row.outbox_id
      union all
      select o.outbox_id
      from redrives r
      cross join lateral (
        select o.outbox_id
        from payment_outbox_operations o
        where o.new_outbox_id = r.outbox_id
          -- A redrive under a new key: the rail counts from that one.
          and o.policy_after is null
        limit 1
      ) o
    )
    -- An earlier outbox whose rows were archived was claimed after its enqueue. Of other earlier ones the epoch is not known.
    select min(case
             when w.outbox_id = v_row.outbox_id and v_row.epoch <> r.epoch
               then least(v_row.created_at, uuidv7_time(w.outbox_id), a.claimed_at)
             when w.outbox_id <> v_row.outbox_id and r.epoch > 1
               then least(uuidv7_time(w.outbox_id), a.created_at, a.claimed_at)
             else coalesce(a.claimed_at, case when w.outbox_id <> v_row.outbox_id then uuidv7_time(w.outbox_id) end)
           end) as first_claimed_at
    from redrives w
    left join lateral (
      select a.claimed_at, a.created_at
      from payment_outbox_attempts a
      where a.outbox_id = w.outbox_id
      order by a.attempt_no
      limit 1
    ) a on true
  ) f
  where r.rail_type = v_row.rail_type;
end
$$;

comment on function symphony.advise_on_unknown_outcome(uuid, uuid, text, int) is
  'What the rail''s policy allows for an instruction whose last attempt has an unknown outcome.';
