-- Completes one claim, or returns a refusal. Beside publish_metadata_claims it is the only function that moves an
-- entry out of PROCESSING, and the only one that moves it to DLQ.
--
-- PUBLISHED and FAILED are for the holder of the claim. So is DLQ if no retries are left; it goes through FAILED in
-- the same transaction, so both moves are legal. Without a token, DLQ is for a FAILED entry.
--
-- A failure adds one to retry_count and schedules the retry: 1 s after the first failure, twice as long after each
-- further one, at most 1024 s. With p_ends_exhausted a failure without retries left moves on to DLQ. Otherwise it
-- stays FAILED, which no claim takes, until repair_metadata_entries moves it.
--
-- A refusal is an SQLSTATE and a message, and nothing has changed: P0002 the entry does not exist, P7001 it has ended,
-- P7002 another claim holds it, P7003 its status does not allow the move, P7005 an argument is wrong. status is then
-- the status that the entry has.
-- Locks: the row. For: the functions that move entries.
create or replace function symphony.try_complete_metadata_claim(
  p_id             uuid,
  p_token          uuid,
  p_outcome        symphony.metadata_status,
  p_error          text,
  p_ends_exhausted boolean,
  out status          symphony.metadata_status,
  out retry_count     int,
  out next_retry_at   timestamptz,
  out refusal         text,
  out refusal_message text)
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
  -- clean_error_text reads no more.
  v_error      constant text := left(p_error, 4000);
  v_exhausted  boolean;
  v_held_by_us boolean;
begin
  refusal_message := case
    when p_id is null then 'p_id must not be null'
    when p_outcome is null or p_outcome not in ('PUBLISHED', 'FAILED', 'DLQ')
      then format('an entry ends as PUBLISHED, FAILED or DLQ, not as %s', coalesce(p_outcome::text, 'anything else'))
    when p_token is null and p_outcome <> 'DLQ' then 'p_token must not be null'
    when p_outcome = 'FAILED' and coalesce(v_error !~ '[^[:space:]]', true) then 'p_error must not be null or blank'
    when p_outcome = 'DLQ' and coalesce(v_error !~ '[^[:space:]]', true) then 'p_reason must not be null or blank'
  end;
  if refusal_message is not null then
    refusal := 'P7005';
    return;
  end if;

  if p_outcome = 'PUBLISHED' then
    select 'PUBLISHED', p.retry_count
    into status, retry_count
    from publish_metadata_claims(array[p_id], array[p_token]) p;
  elsif p_token is not null then
    update metadata_outbox o
    set status = 'FAILED',
        claim_token = null,
        retry_count = o.retry_count + 1,
        last_error = coalesce(clean_error_text(p_error), '[cut]'),
        next_retry_at = case when o.retry_count + 1 < o.max_retries then now() + make_interval(secs => 2 ^ least(o.retry_count, 10)) end,
        updated_at = clock_timestamp()
    where o.id = p_id
      -- Only PROCESSING entries have a token; see publish_metadata_claims.
      and o.claim_token = p_token
      and (p_outcome = 'FAILED' or o.retry_count + 1 >= o.max_retries)
    returning o.status, o.retry_count, o.next_retry_at, o.retry_count >= o.max_retries
    into status, retry_count, next_retry_at, v_exhausted;
    if v_exhausted and (p_outcome = 'DLQ' or p_ends_exhausted) then
      update metadata_outbox o
      set status = 'DLQ',
          updated_at = clock_timestamp()
      where o.id = p_id
        and o.status = 'FAILED'
      returning o.status
      into status;
    end if;
  else
    update metadata_outbox o
    set status = 'DLQ',
        last_error = coalesce(clean_error_text(p_error), '[cut]'),
        next_retry_at = null,
        updated_at = clock_timestamp()
    where o.id = p_id
      and o.status = 'FAILED'
    returning o.status, o.retry_count
    into status, retry_count;
  end if;
  if status is not null then
    return;
  end if;

  select o.status, o.retry_count, o.next_retry_at, coalesce(o.claim_token = p_token, false)
  into status, retry_count, next_retry_at, v_held_by_us
  from metadata_outbox o
  where o.id = p_id;
  if status is null then
    refusal := 'P0002';
    refusal_message := format('entry %s does not exist', p_id);
  elsif status in ('PUBLISHED', 'DLQ') then
    refusal := 'P7001';
    refusal_message := format('entry %s has ended as %s already', p_id, status);
  elsif v_held_by_us then
    refusal := 'P7003';
    refusal_message := format('entry %s is PROCESSING and has retries left: mark it as failed instead', p_id);
  elsif status = 'PROCESSING' then
    refusal := 'P7002';
    refusal_message := format('entry %s is PROCESSING under another claim', p_id);
  else
    refusal := 'P7003';
    refusal_message := format('entry %s is %s and has no claim', p_id, status);
  end if;
end
$$;

comment on function symphony.try_complete_metadata_claim(uuid, uuid, symphony.metadata_status, text, boolean) is
  'Completes one claim as PUBLISHED, FAILED or DLQ, or returns the SQLSTATE and message of a refusal.';
