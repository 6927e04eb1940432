-- Refuses what the status machine has no arrow for: another move, a change of a row that has ended, a beginning that is not PENDING.
--
-- Whoever tries, the owner and a superuser included. The triggers fire for what they are to judge: see triggers/metadata.sql.
-- Locks: nothing. Raises: P7005, P7007. For: triggers.
create or replace function symphony.check_metadata_move()
  returns trigger
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  if tg_op = 'INSERT' then
    if new.status <> 'PENDING' then
      raise exception 'an entry begins as PENDING, not as %', new.status
        using errcode = 'P7007',
              hint = 'Create entries with symphony.create_metadata_entry.';
    end if;
    -- As create_metadata_entry, for whoever inserts without it; see check_payload.
    if pg_column_size(new.metadata) >= 800 or pg_column_compression(new.metadata) is not null then
      perform check_payload('metadata', new.metadata, 1048576);
    end if;
  elsif old.status in ('PUBLISHED', 'DLQ') then
    raise exception 'entry % is % and does not change any more', old.id, old.status
      using errcode = 'P7007',
            hint = 'Create another entry for the entity.';
  elsif not metadata_move_is_legal(old.status, new.status) then
    raise exception 'entry % cannot go from % to %', old.id, old.status, new.status
      using errcode = 'P7007',
            hint = 'Move entries with the functions of schema symphony only.';
  end if;
  return new;
end
$$;

comment on function symphony.check_metadata_move() is 'Trigger: refuses with P7007 what the status machine does not allow, whoever tries.';
