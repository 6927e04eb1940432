-- Says why an entry did not reach the second store: PROCESSING to FAILED, for the holder of the claim.
--
-- It counts up and is due again later, as settle_metadata_claim says. With no retries left it has no next_retry_at: mark it DLQ, or
-- leave that to repair.
-- Locks: the row. Raises: P0002, P7001, P7002, P7003, P7005, and 55P03 behind a lock that is not let go within 5 s.
-- For: symphony_executor.
create or replace function symphony.mark_metadata_failed(
  p_id    uuid,
  p_token uuid,
  p_error text,
  out retry_count   int,
  out next_retry_at timestamptz)
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set lock_timeout = '5s'
as $$
#variable_conflict use_column
begin
  select e.retry_count, e.next_retry_at
  into retry_count, next_retry_at
  from end_metadata_claim(p_id, p_token, 'FAILED', p_error) e;
end
$$;

comment on function symphony.mark_metadata_failed(uuid, uuid, text) is 'PROCESSING to FAILED, for the holder of the claim: tried again while retries are left.';
