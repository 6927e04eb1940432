-- Records the result of one event for the processor that holds its claim.
--
-- A success ends the event; claimed_by stays, to show which processor published it. A failure adds one to retry_count,
-- clears the claim and sets process_after: 1 s after the first failure, twice as long after each further one, at most
-- 1024 s, without a limit of retries. The holder of a stale claim may still complete it, as long as no other processor
-- has taken it over. A p_error that is not blank is cleaned and kept in outbox_errors. complete_event_batch does the
-- same for many events at once.
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
as $$
declare
  v_end record;
begin
  select *
  into v_end
  from try_complete_event(p_event_id, p_processor_id, p_success, p_error);
  if v_end.refusal = 'P7005' then
    raise exception '%', v_end.refusal_message using errcode = 'P7005';
  elsif v_end.refusal is not null then
    raise exception '%', v_end.refusal_message
      using errcode = v_end.refusal,
            hint = v_end.refusal_hint;
  end if;
end
$$;

comment on function m10_recovery.complete_outbox_event(bigint, text, boolean, text) is
  'Records success or failure of an event, for the processor that holds its claim.';
