-- Enforces the status machine: refuses a move that is not legal, a change of an ended entry, and an INSERT that is not
-- PENDING.
--
-- It applies to every role, the owner and superusers included. triggers/metadata.sql decides when it fires.
-- Locks: nothing. Raises: P7005, P7007. For: triggers.
create or replace function symphony.check_metadata_move()
  returns trigger
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  if tg_op = 'INSERT' then
    if new.status <> 'PENDING' then
      raise exception 'an entry must be inserted as PENDING, not as %', new.status
        using errcode = 'P7007',
              hint = 'Create entries with symphony.create_metadata_entry.';
    end if;
    -- create_metadata_entry checks this too; here it covers a direct INSERT. See check_payload.
    if pg_column_size(new.metadata) >= 800 or pg_column_compression(new.metadata) is not null then
      perform check_payload('metadata', new.metadata, 1048576);
    end if;
  elsif old.status in ('PUBLISHED', 'DLQ') then
    raise exception 'entry % is % and cannot change any more', old.id, old.status
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

comment on function symphony.check_metadata_move() is
  'Trigger: refuses with P7007 what the status machine does not allow, for every role.';
