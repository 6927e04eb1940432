-- Wakes a sleeping relayer when work is committed, on the channel that the trigger names.
--
-- Locks: the wake-up lock, shared, only if it is free. For: triggers.
create or replace function symphony.wake_on_insert()
  returns trigger
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  perform wake_sleepers(tg_argv[0]);
  return null;
end
$$;

comment on function symphony.wake_on_insert() is 'Trigger: NOTIFY on the channel given as its argument, if a relayer sleeps there.';
