-- Records how the processing of one event went, for the processor that holds its claim.
--
-- Success ends the event for good; the claim stays, to say who did it. Failure counts up, clears the claim, and schedules
-- the event by process_after: 1 s after the first failure, twice that after each further one, 1024 s at most, without end.
-- A claim that is older than 5 minutes and that nobody took over is still held, so its holder may complete it. What p_error
-- says is kept, cleaned; a blank one says nothing.
-- Locks: the row. Raises: P7002, P7005, and 55P03 behind a lock that is not let go within 5 s. For: symphony_executor.
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
            hint = 'Nothing is left to do.';
  elsif v_event.claimed_by is distinct from p_processor_id then
    raise exception 'processor % holds no claim on event %', p_processor_id, p_event_id
      using errcode = 'P7002',
            hint = 'Drop the work and do not complete it again: the claim was ended, or taken over after 5 minutes.';
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
