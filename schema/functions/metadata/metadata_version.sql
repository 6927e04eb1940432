-- Returns the version of an entry: of two entries the one of the later epoch is the later, and within an epoch the one
-- created later, in microseconds since 1970.
--
-- After a failover with loss the new server's clock may be behind that of the lost one, whose entries the second store
-- has. So the version is (epoch - 1) * 10^16 + microseconds: later in a later epoch whatever the clock says. 10^16
-- microseconds are the year 2286. A bigint has room for 922 epochs; from then on the clock alone decides.
-- Locks: nothing. For: the other functions.
create or replace function symphony.metadata_version(p_created_at timestamptz, p_epoch bigint)
  returns bigint
  language sql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
  select least(p_epoch - 1, 921) * 10000000000000000 + (extract(epoch from p_created_at) * 1000000)::bigint;
$$;

comment on function symphony.metadata_version(timestamptz, bigint) is
  'The version of an entry: (epoch - 1) * 10^16, plus the microseconds from 1970 to its creation.';
