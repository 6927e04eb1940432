-- Releases the events of relayers that are gone, before their claims are 5 minutes old. Returns how many.
--
-- A relayer is gone if its claim session has ended: see ended_claim_sessions. Nothing is guessed from a time. The way is
-- the one of the contract: the claim is completed as failed under the name of its processor, so retry_count rises and the
-- event is due after its backoff. What the relayer has sent and not recorded is delivered again. The completion that it may
-- still send is refused with P7002.
--
-- It looks at the 10,000 oldest claims. Claims of the last second are left for the next call, because almost all of them are
-- about to be completed.
-- Locks: the rows that it releases; it skips rows that another session has locked. Raises: P7005. For: symphony_executor.
create or replace function symphony.release_abandoned_events(p_limit int default 1000)
  returns int
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set lock_timeout = '5s'
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
declare
  v_ended    text[];
  v_event    record;
  v_refusal  text;
  v_released int := 0;
begin
  perform check_range('p_limit', p_limit, 1, 1000);
  -- The claims first, and their sessions after that: a session begins before its claims.
  v_ended := array(
    select distinct c.claimed_by
    from (
      select o.claimed_by
      from m10_recovery.outbox o
      where o.processed_at is null
        and o.claimed_at is not null
        and o.claimed_at between now() - event_claim_timeout() and now() - interval '1 second'
      order by o.claimed_at, o.id
      limit 10000
    ) c);
  if v_ended = '{}' then
    return 0;
  end if;
  v_ended := ended_claim_sessions(v_ended);
  if v_ended = '{}' then
    return 0;
  end if;
  for v_event in
    select o.id, o.claimed_by
    from m10_recovery.outbox o
    where o.processed_at is null
      and o.claimed_at is not null
      and o.claimed_at between now() - event_claim_timeout() and now() - interval '1 second'
      and o.claimed_by = any (v_ended)
    order by o.claimed_at, o.id
    limit p_limit
    for no key update skip locked
  loop
    select e.refusal
    into v_refusal
    from try_complete_event(v_event.id, v_event.claimed_by, false, 'released: the session of the relayer that claimed it has ended') e;
    if v_refusal is null then
      v_released := v_released + 1;
    end if;
  end loop;
  return v_released;
end
$$;

comment on function symphony.release_abandoned_events(int) is
  'Releases the events of relayers whose claim session has ended, as failures of their processors.';
