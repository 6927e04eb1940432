-- Records that an entry did not reach the second store: PROCESSING to FAILED, for the holder of the claim.
--
-- It adds one to retry_count and schedules the retry as try_complete_metadata_claim does. Without retries left the
-- entry has no next_retry_at: move it with mark_metadata_dlq, or leave that to repair_metadata_entries.
-- Locks: the row. Raises: P0002, P7001, P7002, P7003, P7005, 55P03 after 5 s behind a lock. For: symphony_executor.
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
  from complete_metadata_claim(p_id, p_token, 'FAILED', p_error) e;
end
$$;

comment on function symphony.mark_metadata_failed(uuid, uuid, text) is
  'PROCESSING to FAILED, for the holder of the claim; retried while retries are left.';
