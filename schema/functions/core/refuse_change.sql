-- Refuses what the trigger that calls it stands for: a change to something that is only ever added to,
-- or to what identifies a row.
--
-- Whoever tries, the owner and a superuser included. The trigger's argument says what may not be done,
-- in words that fit behind "on <table>: ".
-- Locks: nothing. Raises: P0001. For: triggers.
create or replace function symphony.refuse_change()
  returns trigger
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  raise exception '% on %: %', lower(tg_op), tg_table_name, tg_argv[0]
    using errcode = 'P0001',
          hint = 'Change the state of an outbox through the functions of schema symphony only; see schema/README.md.';
end
$$;

comment on function symphony.refuse_change() is 'Trigger: refuses with P0001, whoever tries.';
