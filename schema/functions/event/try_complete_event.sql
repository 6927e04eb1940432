-- Records the result of one event for the processor that holds its claim, or returns a refusal.
--
-- The rules are those of complete_outbox_event, which raises what this returns. A refusal is an SQLSTATE and a
-- message, and nothing has changed: P7002 the event is processed or the claim is not held, P7005 an argument is wrong.
-- Locks: the row, and those that unpark_next_events puts back.
-- For: complete_outbox_event, complete_event_batch and release_abandoned_events.
create or replace function symphony.try_complete_event(
  p_event_id     bigint,
  p_processor_id text,
  p_success      boolean,
  p_error        text,
  out refusal         text,
  out refusal_message text,
  out refusal_hint    text)
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
declare
  v_error        text;
  v_retry_count  int;
  v_processed_at timestamptz;
begin
  refusal_message := case
    when p_event_id is null then 'p_event_id must not be null'
    when p_processor_id is null then 'p_processor_id must not be null'
    when p_processor_id !~ '[^[:space:]]' then 'p_processor_id must not be blank'
    when char_length(p_processor_id) > 200
      then format('p_processor_id must have at most 200 characters, not %s', char_length(p_processor_id))
    when p_success is null then 'p_success must not be null'
  end;
  if refusal_message is not null then
    refusal := 'P7005';
    return;
  end if;

  -- One statement for both results. See complete_published_events for the form of its condition.
  update m10_recovery.outbox o
  set processed_at = case when p_success then now() end,
      retry_count = case when p_success then o.retry_count else o.retry_count + 1 end,
      process_after = case when p_success then o.process_after else now() + make_interval(secs => 2 ^ least(o.retry_count, 10)) end,
      claimed_at = case when p_success then o.claimed_at end,
      claimed_by = case when p_success then o.claimed_by end
  where o.id = p_event_id
    and p_processor_id = case when o.processed_at is null then o.claimed_by end
  returning o.retry_count
  into v_retry_count;
  if p_success and v_retry_count is not null then
    perform unpark_next_events(array[p_event_id])
    where exists (select from m10_recovery.outbox_unprocessed p where p.is_parked order by p.aggregate_id, p.aggregate_type, p.id limit 1);
  end if;

  if v_retry_count is null then
    select o.processed_at
    into v_processed_at
    from m10_recovery.outbox o
    where o.id = p_event_id;
    refusal := 'P7002';
    if v_processed_at is not null then
      refusal_message := format('event %s is processed already', p_event_id);
      refusal_hint := 'Drop the work: the event needs no completion.';
    else
      refusal_message := format('processor %s holds no claim on event %s', p_processor_id, p_event_id);
      refusal_hint := 'Drop the work and do not complete it again: the claim was completed, or another processor took it over.';
    end if;
    return;
  end if;

  v_error := clean_error_text(p_error);
  if v_error is not null then
    insert into m10_recovery.outbox_errors (event_id, retry_count, succeeded, processor_id, error)
    values (p_event_id, v_retry_count, p_success, p_processor_id, v_error);
  end if;
end
$$;

comment on function symphony.try_complete_event(bigint, text, boolean, text) is
  'Records the result of one event, or returns the SQLSTATE and message of a refusal.';
