-- Publishes one event in the producer's transaction: it commits with the business rows or not at all.
--
-- The id is the next number of the sequence in the range of the epoch: see symphony.number_floor. A failover or a restore may set the
-- sequence back; the range is new.
--
-- Names have at most 200 characters, the payload at most 1 MiB and 100 levels. The trigger on the table notifies an
-- idle relayer.
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
  perform check_payload('p_payload', p_payload, v_payload_limit);

  insert into outbox as o (id, aggregate_type, aggregate_id, event_type, payload)
  overriding system value
  values (number_floor() + nextval('m10_recovery.outbox_id_seq'), p_aggregate_type, p_aggregate_id, p_event_type, p_payload)
  returning o.id
  into v_id;
  return v_id;
end
$$;

comment on function m10_recovery.publish_outbox(text, text, text, jsonb) is
  'Publishes one event in the producer''s transaction and returns its id.';
