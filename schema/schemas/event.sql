-- Creates the schema of the event lane for the owner. The installer runs it.
--
-- The contract fixes the name, so another application may already use it: such a schema is refused and left unchanged.
do $schema$
declare
  v_owner name;
begin
  select pg_get_userbyid(n.nspowner) into v_owner from pg_namespace n where n.nspname = 'm10_recovery';
  if v_owner is null then
    begin
      create schema m10_recovery authorization symphony_control;
    exception when insufficient_privilege then
      raise exception '% may not create a schema in database %', current_user, current_database()
        using errcode = '42501',
              hint = format('Let the owner of the database run: grant create on database %I to %I;', current_database(), current_user);
    end;
  elsif v_owner <> 'symphony_control' then
    raise exception 'schema m10_recovery already exists and belongs to %', regexp_replace(quote_ident(v_owner::text), '[^ -~]', '?', 'g')
      using errcode = '55000',
            hint = 'The event lane needs this schema for itself. Install into another database, or move its objects to a schema of another name.';
  end if;
end
$schema$;
