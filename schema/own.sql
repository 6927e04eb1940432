-- Prepare to be the owner: after this and the files of schemas/ the role is set, and until disown.sql every object is
-- created as symphony_control.
--
-- A superuser may simply set the role. Anybody else must be a member of it who may SET ROLE, which
-- CREATEROLE lets one arrange: on 15 for any role, from 16 on for the roles one created (those come
-- with the ADMIN option, but without SET). What is granted here for the install is taken back by
-- disown.sql; a membership that a DBA gave stays as it was.
do $own$
declare
  v_may_set_role constant text := case when current_setting('server_version_num')::int >= 160000 then 'SET' else 'MEMBER' end;
begin
  perform set_config('symphony.membership_borrowed', 'no', true);
  if not pg_has_role(current_user, 'symphony_control', v_may_set_role) then
    begin
      grant symphony_control to current_user;
      perform set_config('symphony.membership_borrowed', 'yes', true);
    exception when insufficient_privilege then
      raise exception '% may not act as symphony_control, which owns every object of Symphony', current_user
        using errcode = '42501',
              hint = format('Let the role that created symphony_control run: grant symphony_control to %I;', current_user);
    end;
  end if;
  if to_regnamespace('symphony') is null then
    begin
      create schema symphony authorization symphony_control;
    exception when insufficient_privilege then
      raise exception '% may not create a schema in database %', current_user, current_database()
        using errcode = '42501',
              hint = format('Let the owner of the database run: grant create on database %I to %I;', current_database(), current_user);
    end;
  end if;
end
$own$;
