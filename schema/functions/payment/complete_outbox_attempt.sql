-- Records the outcome of one attempt: a batch of one, whose refusal is an error.
--
-- PostgreSQL itself refuses a state that the type outbox_attempt_state does not have, with 22P02. This function
-- refuses ZOMBIE_REQUEUE, which only the database records, with P7003.
-- Locks: the row. Raises: P7001, P7002, P7003, P7005, 25000 outside READ COMMITTED. For: symphony_executor.
create or replace function symphony.complete_outbox_attempt(
  p_outbox_id           uuid,
  p_lease_token         uuid,
  p_worker_id           text,
  p_state               symphony.outbox_attempt_state,
  p_rail_reference      text default null,
  p_rail_code           text default null,
  p_error_code          text default null,
  p_error_message       text default null,
  p_latency_ms          int  default null,
  p_retry_delay_seconds int  default null,
  out attempt_no        int,
  out state             symphony.outbox_attempt_state,
  out next_attempt_at   timestamptz)
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set lock_timeout = '5s'
as $$
#variable_conflict use_column
declare
  v_result record;
begin
  select *
  into strict v_result
  from complete_outbox_batch(
    array[p_outbox_id], array[p_lease_token], p_worker_id, array[p_state], array[p_rail_reference], array[p_rail_code],
    array[p_error_code], array[p_error_message], array[p_latency_ms], array[p_retry_delay_seconds]);

  if v_result.refusal is not null then
    raise exception '%', v_result.refusal_message
      using errcode = v_result.refusal,
            hint = case v_result.refusal
              when 'P7001' then 'Drop the work: the ledger has the outcome.'
              when 'P7002' then 'Drop the work and do not complete it again: the lease has expired, was released or was taken over.'
              else 'Correct the argument and complete again while the lease lasts.'
            end;
  end if;

  attempt_no := v_result.attempt_no;
  state := v_result.state;
  next_attempt_at := v_result.next_attempt_at;
end
$$;

comment on function symphony.complete_outbox_attempt(uuid, uuid, text, symphony.outbox_attempt_state, text, text, text, text, int, int) is
  'Records the outcome of an attempt, for the worker that holds its lease.';
