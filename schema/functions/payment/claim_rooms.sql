-- How many rows of each rail the caller has room for, from the setting symphony.claim_rooms.
--
-- The setting is a JSON object, {"sepa": 12, "swift": 0}: a rail that it does not name gives nothing. Unset or
-- empty is null: no bound but the batch. A worker that serves some rails only, or leaves one alone for a while, says so by it.
-- Locks: nothing. Raises: P7005. For: claim_outbox_batch and next_outbox_due.
create or replace function symphony.claim_rooms()
  returns jsonb
  language plpgsql
  stable
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_setting constant text := nullif(current_setting('symphony.claim_rooms', true), '');
  v_rooms   jsonb;
begin
  if v_setting is null then
    return null;
  end if;
  v_rooms := v_setting::jsonb;
  if jsonb_typeof(v_rooms) <> 'object'
     or jsonb_path_exists(v_rooms, '$.* ? (@.type() != "number" || @ < 0 || @ > 1000000)') then
    raise exception 'symphony.claim_rooms must be a JSON object of rails and numbers from 0 to 1000000' using errcode = 'P7005';
  end if;
  return v_rooms;
exception when invalid_text_representation then
  raise exception 'symphony.claim_rooms must be a JSON object' using errcode = 'P7005';
end
$$;

comment on function symphony.claim_rooms() is 'The setting symphony.claim_rooms: room for rows, by rail; null is no bound.';
