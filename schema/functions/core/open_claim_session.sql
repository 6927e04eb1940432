-- Marks this session as the one whose end shows that a relayer is gone, and returns the mark.
--
-- A relayer keeps the session open while it runs, and claims events under names that contain the mark. The mark names the
-- start of this server and the key of an advisory lock, which the session holds until it ends: with its process, at the
-- latest. ended_claim_sessions reads both.
--
-- The server ends the session of a host that is silent for 25 s. The relayer must use the session every few seconds, and stop
-- sending what it has claimed when it has had no answer for 10 s: so it has stopped before another relayer gets it. Do not
-- call it behind a pooler: its session outlives the relayer.
-- Locks: the advisory lock of the mark, for the session. Raises: nothing. For: symphony_executor.
create or replace function symphony.open_claim_session()
  returns text
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_key bigint;
begin
  perform set_config('idle_session_timeout', '0', false);
  -- Without effect on a Unix socket, which ends with its process.
  perform set_config('tcp_keepalives_idle', '10', false);
  perform set_config('tcp_keepalives_interval', '5', false);
  perform set_config('tcp_keepalives_count', '3', false);
  perform set_config('tcp_user_timeout', '25000', false);
  loop
    v_key := hashtextextended('symphony.claim_session ' || gen_random_uuid(), 7000);
    exit when pg_try_advisory_lock(v_key);
  end loop;
  return format(
    '%s.%s',
    to_hex((extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint),
    lpad(to_hex(v_key), 16, '0'));
end
$$;

comment on function symphony.open_claim_session() is
  'Marks this session as the one whose end shows that a relayer is gone, and returns the mark for the names of its claims.';
