-- Moves an entry from FAILED to DLQ, which is terminal.
--
-- With p_token it is for the holder of a claim without retries left: PROCESSING to FAILED to DLQ in one transaction.
-- Without p_token it is for a FAILED entry, whether retries are left or not.
-- Locks: the row. Raises: P0002, P7001, P7002, P7003, P7005, 55P03 after 5 s behind a lock.
-- For: symphony_executor and symphony_operator.
create or replace function symphony.mark_metadata_dlq(p_id uuid, p_token uuid, p_reason text)
  returns void
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set lock_timeout = '5s'
as $$
begin
  perform complete_metadata_claim(p_id, p_token, 'DLQ', p_reason);
end
$$;

comment on function symphony.mark_metadata_dlq(uuid, uuid, text) is
  'FAILED to DLQ; with the token of a claim that has no retries left, from PROCESSING through FAILED.';
