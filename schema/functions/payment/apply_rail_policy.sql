-- Changes the policy of an existing rail, and the rows that depend on it: leases in flight, tokens, parked rows and holds.
--
-- p_before is the rail as it is. A field that the policy does not name stays as it is.
-- Locks: the holds that it releases, for which it waits at most 3 s; the caller holds payment_rails in EXCLUSIVE mode. Raises: P7005 for a backoff cap below the base, for
-- on_failure HOLD without order, and for publish_outcomes without the event lane.
-- For: register_payment_rail and set_payment_rail.
create or replace function symphony.apply_rail_policy(p_before symphony.payment_rails, p_policy jsonb, p_actor text)
  returns symphony.payment_rails
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
  set lock_timeout = '3s'
as $$
declare
  v_after        payment_rails;
  v_constraint   text;
  -- The failures that held streams, as parallel arrays.
  v_participants text[];
  v_rails        text[];
  v_sequence_ids bigint[];
begin
  begin
    update payment_rails r
    set max_attempts = coalesce((p_policy ->> 'max_attempts')::int, r.max_attempts),
        backoff_base_seconds = coalesce((p_policy ->> 'backoff_base_seconds')::int, r.backoff_base_seconds),
        backoff_cap_seconds = coalesce((p_policy ->> 'backoff_cap_seconds')::int, r.backoff_cap_seconds),
        ordered = coalesce((p_policy ->> 'ordered')::boolean, r.ordered),
        on_unknown = coalesce(p_policy ->> 'on_unknown', r.on_unknown),
        on_epoch_change = coalesce(p_policy ->> 'on_epoch_change', r.on_epoch_change),
        confirm_every_seconds = coalesce((p_policy ->> 'confirm_every_seconds')::int, r.confirm_every_seconds),
        max_in_flight = case when p_policy ? 'max_in_flight' then (p_policy ->> 'max_in_flight')::int else r.max_in_flight end,
        max_per_second = case when p_policy ? 'max_per_second' then (p_policy ->> 'max_per_second')::int else r.max_per_second end,
        key_memory_seconds = case when p_policy ? 'key_memory_seconds' then (p_policy ->> 'key_memory_seconds')::int else r.key_memory_seconds end,
        on_failure = coalesce(p_policy ->> 'on_failure', r.on_failure),
        publish_outcomes = coalesce((p_policy ->> 'publish_outcomes')::boolean, r.publish_outcomes),
        updated_by = p_actor,
        updated_at = clock_timestamp()
    where r.rail_type = p_before.rail_type
    returning r.* into v_after;
  exception when check_violation then
    get stacked diagnostics v_constraint = constraint_name;
    if v_constraint = 'payment_rails_only_an_ordered_rail_holds' then
      raise exception 'p_policy: on_failure HOLD needs ordered = true: only an ordered rail has successors to hold'
        using errcode = 'P7005',
              hint = 'Set both, or leave on_failure at CONTINUE.';
    end if;
    -- check_rail_policy has checked everything else.
    raise exception 'p_policy: backoff_cap_seconds must not be below backoff_base_seconds'
      using errcode = 'P7005',
            hint = 'Set both, or check the current one in symphony.payment_rail_policies.';
  end;

  if v_after.publish_outcomes and not p_before.publish_outcomes and not event_lane_is_installed() then
    raise exception 'p_policy: publish_outcomes needs the event lane, which is not installed'
      using errcode = 'P7005',
            hint = 'Install it with: symphony install --lane event.';
  end if;
  if p_before.max_in_flight is null and v_after.max_in_flight is not null then
    -- Leases granted before the limit count from now on.
    insert into payment_rail_in_flight (rail_type, lease_token, outbox_id)
    select p.rail_type, p.lease_token, p.outbox_id
    from payment_outbox_pending p
    where p.rail_type = p_before.rail_type
      and p.lease_token is not null
    on conflict do nothing;
  elsif v_after.max_in_flight is null then
    delete from payment_rail_in_flight s where s.rail_type = p_before.rail_type;
  end if;
  if v_after.max_per_second is null then
    delete from payment_rail_tokens t where t.rail_type = p_before.rail_type;
  else
    -- A full bucket to begin with. A change of the rate adds no token.
    insert into payment_rail_tokens as t (rail_type, micro_tokens)
    values (p_before.rail_type, v_after.max_per_second * 1000000::bigint)
    on conflict (rail_type) do update
      set micro_tokens = least(t.micro_tokens, excluded.micro_tokens);
  end if;
  if p_before.on_failure = 'HOLD' and v_after.on_failure = 'CONTINUE' then
    with released as (
      delete from payment_stream_holds h
      where h.rail_type = p_before.rail_type
      returning h.participant_id, h.rail_type, h.sequence_id
    )
    select array_agg(r.participant_id), array_agg(r.rail_type), array_agg(r.sequence_id)
    into v_participants, v_rails, v_sequence_ids
    from released r;
    perform unpark_successors(v_participants, v_rails, v_sequence_ids, false);
  end if;
  if p_before.ordered and not v_after.ordered then
    -- Without order no row waits for another. What a cancellation has locked is left to unpark_requested_rows: all claims wait for
    -- this call, and it must not wait for a producer.
    with waiting as materialized (
      select p.outbox_id
      from payment_outbox_pending p
      where p.rail_type = p_before.rail_type
        and p.parked
    ),
    locked as materialized (
      select p.outbox_id
      from payment_outbox_pending p
      where p.rail_type = p_before.rail_type
        and p.parked
      for no key update skip locked
    ),
    unparked as (
      update payment_outbox_pending p
      set parked = false
      from locked l
      where p.outbox_id = l.outbox_id
    )
    insert into payment_unpark_requests (request_id, outbox_id)
    select uuidv7(), w.outbox_id
    from waiting w
    where not exists (select from locked l where l.outbox_id = w.outbox_id);
  end if;
  if (p_before.ordered, p_before.max_in_flight, p_before.max_per_second)
     is distinct from (v_after.ordered, v_after.max_in_flight, v_after.max_per_second) then
    -- The change may make rows claimable, and no INSERT notifies of them.
    perform notify_idle_relayers('outbox_pending');
  end if;
  return v_after;
end
$$;

comment on function symphony.apply_rail_policy(symphony.payment_rails, jsonb, text) is
  'Changes the policy of an existing rail, with its leases in flight, its parked rows and its holds.';
