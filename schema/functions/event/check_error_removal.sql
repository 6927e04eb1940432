-- Refuses the deletion of a recorded error, unless it is past the retention of events and its event was removed.
--
-- It applies to every role, the owner and superusers included.
-- Locks: nothing. Raises: P0001. For: a trigger of outbox_errors.
create or replace function symphony.check_error_removal()
  returns trigger
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  if old.created_at < retention_cutoff('events')
     and not exists (select from m10_recovery.outbox o where o.id = old.event_id) then
    return old;
  end if;
  raise exception 'delete on outbox_errors: the history of errors is append-only'
    using errcode = 'P0001',
          hint = 'symphony maintain removes the errors of events past the retention of events.';
end
$$;

comment on function symphony.check_error_removal() is
  'Trigger: refuses to delete a recorded error before the end of its retention, or while its event is there.';
