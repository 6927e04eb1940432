-- Records the result of one event for the processor that holds its claim.
--
-- A success ends the event; claimed_by stays, to show which processor published it. A failure adds one to retry_count,
-- clears the claim and sets process_after: 1 s after the first failure, twice as long after each further one, at most
-- 1024 s, without a limit of retries. The holder of a stale claim may still complete it, as long as no other processor
-- has taken it over. A p_error that is not blank is cleaned and kept in outbox_errors.
-- Locks: the row. Raises: P7002, P7005, 55P03 after 5 s behind a lock. For: symphony_executor.
create or replace function m10_recovery.complete_outbox_event(
  p_event_id     bigint,
  p_processor_id text,
  p_success      boolean,
  p_error        text default null)
  returns void
  language plpgsql
  security definer
  set search_path = pg_catalog, m10_recovery, symphony, pg_temp
  set lock_timeout = '5s'
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
declare
  v_event record;
  v_error text;
begin
  if p_event_id is null then
    raise exception 'p_event_id must not be null' using errcode = 'P7005';
  end if;
  perform check_argument('p_processor_id', p_processor_id, 200);
  if p_success is null then
    raise exception 'p_success must not be null' using errcode = 'P7005';
  end if;

  select o.processed_at, o.claimed_by, o.retry_count
  into v_event
  from outbox o
  where o.id = p_event_id
  for no key update;

  if v_event.processed_at is not null then
    raise exception 'event % is processed already', p_event_id
      using errcode = 'P7002',
            hint = 'Drop the work: the event needs no completion.';
  elsif v_event.claimed_by is distinct from p_processor_id then
    raise exception 'processor % holds no claim on event %', p_processor_id, p_event_id
      using errcode = 'P7002',
            hint = 'Drop the work and do not complete it again: the claim was completed, or another processor took it over.';
  end if;

  if p_success then
    update outbox o
    set processed_at = now()
    where o.id = p_event_id;
  else
    update outbox o
    set retry_count = o.retry_count + 1,
        process_after = now() + make_interval(secs => 2 ^ least(o.retry_count, 10)),
        claimed_at = null,
        claimed_by = null
    where o.id = p_event_id;
  end if;

  v_error := clean_error_text(p_error);
  if v_error is not null then
    insert into outbox_errors (event_id, retry_count, succeeded, processor_id, error)
    values (p_event_id, v_event.retry_count + case when p_success then 0 else 1 end, p_success, p_processor_id, v_error);
  end if;
end
$$;

comment on function m10_recovery.complete_outbox_event(bigint, text, boolean, text) is
  'Records success or failure of an event, for the processor that holds its claim.';
