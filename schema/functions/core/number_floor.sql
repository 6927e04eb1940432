-- Returns the number after which the numbers of this epoch begin: (epoch - 1) * 10^12.
--
-- Sequence numbers of participants and ids of events are greater. So a number that a failover lost, but that a bank or
-- a broker has seen, is never given out again.
-- Locks: nothing. Raises: 55000 on a standby.
-- For: bump_participant_outbox_seq, allocate_outbox_sequences, the enqueue functions and publish_outbox.
create or replace function symphony.number_floor()
  returns bigint
  language plpgsql
  stable
  set search_path = pg_catalog, symphony, pg_temp
  set enable_seqscan = off
as $$
begin
  -- The usual case of number_epoch, without the call.
  return (coalesce((
    select case when e.timeline = ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int then e.counter end
    from epoch e
    order by e.counter desc
    limit 1), number_epoch()) - 1) * 1000000000000;
end
$$;

comment on function symphony.number_floor() is 'The number after which the numbers of this epoch begin.';
