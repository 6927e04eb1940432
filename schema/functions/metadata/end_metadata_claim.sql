-- Ends one claim, and raises where settle_metadata_claim refuses.
--
-- Locks: the row. Raises: P0002, P7001, P7002, P7003, P7005. For: the moves of a single entry.
create or replace function symphony.end_metadata_claim(
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
  from settle_metadata_claim(p_id, p_token, p_outcome, p_error, false);
  if v_end.refusal is not null then
    raise exception '%', v_end.refusal_message
      using errcode = v_end.refusal,
            hint = case v_end.refusal
              when 'P0002' then 'Look at the id.'
              when 'P7001' then 'Nothing is left to do.'
              when 'P7002' then 'Drop the work and do not complete it again: the claim was ended after 5 minutes, and the entry claimed anew.'
              when 'P7003' then 'Drop the work if it was yours: the claim was ended. Find the entry with symphony.find_metadata_by_entity.'
              else 'Correct the argument.'
            end;
  end if;
  status := v_end.status;
  retry_count := v_end.retry_count;
  next_retry_at := v_end.next_retry_at;
end
$$;

comment on function symphony.end_metadata_claim(uuid, uuid, symphony.metadata_status, text) is 'Ends one claim, or raises what is in the way.';
