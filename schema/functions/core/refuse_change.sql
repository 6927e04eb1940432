-- Refuses the statement that fired the trigger: a change of an append-only table, or of what identifies a row.
--
-- It applies to every role, the owner and superusers included. The trigger's argument completes the message
-- "<operation> on <table>: …".
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

comment on function symphony.refuse_change() is 'Trigger: refuses the change with P0001, for every role.';
