-- Notifies an idle relayer when inserted rows are committed. The trigger names the channel.
--
-- Locks: the wake-up lock in shared mode, if it is free. For: triggers.
create or replace function symphony.notify_on_insert()
  returns trigger
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  perform notify_idle_relayers(tg_argv[0]);
  return null;
end
$$;

comment on function symphony.notify_on_insert() is
  'Trigger: sends a NOTIFY on the channel given as its argument, if a relayer is idle there.';
