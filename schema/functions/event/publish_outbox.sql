-- Publishes one event in the caller's transaction: it is committed with the business rows or not at all.
--
-- Lengths are bounded as everywhere: 200 characters for a name, 1 MiB for the payload. The trigger on the table wakes a
-- relayer that sleeps.
-- Locks: nothing. Raises: P7005. For: symphony_ingest.
create or replace function m10_recovery.publish_outbox(
  p_aggregate_type text,
  p_aggregate_id   text,
  p_event_type     text,
  p_payload        jsonb)
  returns bigint
  language plpgsql
  security definer
  set search_path = pg_catalog, m10_recovery, symphony, pg_temp
as $$
declare
  v_payload_limit constant int := 1048576;
  v_id            bigint;
begin
  perform check_argument('p_aggregate_type', p_aggregate_type, 200);
  perform check_argument('p_aggregate_id', p_aggregate_id, 200);
  perform check_argument('p_event_type', p_event_type, 200);
  if p_payload is null then
    raise exception 'p_payload must not be null' using errcode = 'P7005';
  elsif pg_column_size(p_payload) > v_payload_limit then
    raise exception 'p_payload must have at most % bytes, not %', v_payload_limit, pg_column_size(p_payload)
      using errcode = 'P7005',
            hint = 'Keep a large document in a table of your own, and its key in the payload.';
  end if;

  insert into outbox as o (aggregate_type, aggregate_id, event_type, payload)
  values (p_aggregate_type, p_aggregate_id, p_event_type, p_payload)
  returning o.id
  into v_id;
  return v_id;
end
$$;

comment on function m10_recovery.publish_outbox(text, text, text, jsonb) is 'Publishes one event in the caller''s transaction and returns its number.';
