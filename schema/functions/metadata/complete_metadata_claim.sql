-- Completes one claim, and raises the refusal that try_complete_metadata_claim returns.
--
-- Locks: the row. Raises: P0002, P7001, P7002, P7003, P7005.
-- For: mark_metadata_published, mark_metadata_failed and mark_metadata_dlq.
create or replace function symphony.complete_metadata_claim(
  p_id      uuid,
  p_token   uuid,
  p_outcome symphony.metadata_status,
  p_error   text,
  out status        symphony.metadata_status,
  out retry_count   int,
  out next_retry_at timestamptz)
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_end record;
begin
  select *
  into v_end
  from try_complete_metadata_claim(p_id, p_token, p_outcome, p_error, false);
  if v_end.refusal is not null then
    raise exception '%', v_end.refusal_message
      using errcode = v_end.refusal,
            hint = case v_end.refusal
              when 'P0002' then 'Check the id.'
              when 'P7001' then 'Drop the work: the entry has ended.'
              when 'P7002' then 'Drop the work and do not complete it again: repair ended the claim, and another worker has claimed the entry.'
              when 'P7003' then 'Drop the work if this worker had claimed the entry: its claim has ended. symphony.find_metadata_by_entity shows the entry.'
              else 'Correct the argument.'
            end;
  end if;
  status := v_end.status;
  retry_count := v_end.retry_count;
  next_retry_at := v_end.next_retry_at;
end
$$;

comment on function symphony.complete_metadata_claim(uuid, uuid, symphony.metadata_status, text) is
  'Completes one claim, or raises why it cannot.';
