-- Prepares the install to run as the owner: after this and the files of schemas/ the role is symphony_control, until
-- reset_owner_role.sql.
--
-- A superuser may simply set the role. Any other login must be a member of it that may SET ROLE, which
-- CREATEROLE lets one arrange: on 15 for any role, from 16 on for the roles one created (those come
-- with the ADMIN option, but without SET). What is granted here for the install is taken back by
-- reset_owner_role.sql; a membership that a DBA gave stays as it was.
--
-- The install runs statements as symphony_control, and SET ROLE is no sandbox: code that a member of it has planted could
-- RESET ROLE and become the login that installs. So a superuser must not install while a login that is no superuser can
-- act as symphony_control.
do $assume_owner_role$
declare
  v_may_set_role constant text := case when current_setting('server_version_num')::int >= 160000 then 'SET' else 'MEMBER' end;
  v_superuser constant boolean := exists (select from pg_roles r where r.rolname in (session_user, current_user) and r.rolsuper);
  v_excess text;
  v_others text;
  v_owner name;
begin
  select concat_ws(', ', case when r.rolcanlogin then 'LOGIN' end, case when r.rolsuper then 'SUPERUSER' end,
                   case when r.rolcreaterole then 'CREATEROLE' end, case when r.rolcreatedb then 'CREATEDB' end,
                   case when r.rolreplication then 'REPLICATION' end, case when r.rolbypassrls then 'BYPASSRLS' end)
  into v_excess
  from pg_roles r
  where r.rolname = 'symphony_control';
  if v_excess <> '' then
    raise exception 'role symphony_control has attributes that it must not have: %', v_excess
      using errcode = '55000',
            hint = format('Find out who may use it; then let a superuser run: alter role symphony_control %s;',
                          'no' || replace(lower(v_excess), ', ', ' no'));
  end if;
  if v_superuser then
    -- From 16 on a membership may come without any right to use it; 15 has no such columns.
    with recursive usable as (
      select m.roleid, m.member
      from pg_auth_members m
      where m.admin_option
         or coalesce((to_jsonb(m) ->> 'set_option')::boolean, true)
         or coalesce((to_jsonb(m) ->> 'inherit_option')::boolean, true)
    ),
    members (oid) as (
      select u.member from usable u where u.roleid = to_regrole('symphony_control')
      union
      select u.member from members m join pg_roles r on r.oid = m.oid and not r.rolsuper join usable u on u.roleid = m.oid
    )
    select string_agg(quote_ident(r.rolname::text), ', ' order by r.rolname) into v_others
    from members m
    join pg_roles r on r.oid = m.oid
    where not r.rolsuper;
    if v_others is not null then
      raise exception '% may act as symphony_control, and code that it planted would run with the rights of the superuser %',
        regexp_replace(v_others, '[^ -~]', '?', 'g'), session_user
        using errcode = '55000',
              hint = format('Install as that login instead of as a superuser; or, if it should not be the owner, run: revoke symphony_control from %s;',
                            regexp_replace(v_others, '[^ -~]', '?', 'g'));
    end if;
    select string_agg(format('event trigger %I calls %s, which belongs to %I', e.evtname, p.oid::regprocedure, pg_get_userbyid(p.proowner)), '; '
                      order by e.evtname)
    into v_others
    from pg_event_trigger e
    join pg_proc p on p.oid = e.evtfoid
    join pg_roles r on r.oid = p.proowner
    where e.evtenabled in ('O', 'A')
      and e.evtevent <> 'login'
      and not r.rolsuper;
    if v_others is not null then
      raise exception 'every statement of an install would run code of a role that is no superuser: %', regexp_replace(v_others, '[^ -~]', '?', 'g')
        using errcode = '55000',
              hint = 'Give the function to a superuser, disable the event trigger for the install, or install as a login that is no superuser.';
    end if;
  end if;
  perform set_config('symphony.role_before_install', current_setting('role'), true);
  perform set_config('symphony.membership_granted_for_install', 'no', true);
  if not pg_has_role(current_user, 'symphony_control', v_may_set_role) then
    begin
      grant symphony_control to current_user;
      perform set_config('symphony.membership_granted_for_install', 'yes', true);
    exception when insufficient_privilege then
      raise exception '% may not act as symphony_control, which owns every object of Symphony', current_user
        using errcode = '42501',
              hint = format('Let the role that created symphony_control run: grant symphony_control to %I;', current_user);
    end;
  end if;
  select pg_get_userbyid(n.nspowner) into v_owner from pg_namespace n where n.nspname = 'symphony';
  if v_owner is null then
    begin
      create schema symphony authorization symphony_control;
    exception when insufficient_privilege then
      raise exception '% may not create a schema in database %', current_user, current_database()
        using errcode = '42501',
              hint = format('Let the owner of the database run: grant create on database %I to %I;', current_database(), current_user);
    end;
  elsif v_owner <> 'symphony_control' then
    raise exception 'schema symphony already exists and belongs to %', regexp_replace(quote_ident(v_owner::text), '[^ -~]', '?', 'g')
      using errcode = '55000',
            hint = 'Nothing in it was read. If it is a dump that was restored without roles: drop this database, run symphony install '
                   '--roles-only, and restore it again. Otherwise ask its owner what it is for, install into another database, or let a '
                   'superuser drop or rename the schema; if it is empty: alter schema symphony owner to symphony_control;';
  end if;
end
$assume_owner_role$;
