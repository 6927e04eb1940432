-- Creates the roles that do not exist yet.
--
-- Run by the installer as itself. It needs no superuser: CREATEROLE is enough, and where a DBA has
-- made the roles beforehand, not even that. Roles belong to the whole server, so an install into
-- another database may create one between our look and our CREATE: that is no error.
do $roles$
begin
  if to_regrole('symphony_control') is null then
    begin
      create role symphony_control nologin;
      comment on role symphony_control is 'Symphony: owns every object. NOLOGIN.';
    exception when duplicate_object or unique_violation then null;
    end;
  end if;
  if to_regrole('symphony_ingest') is null then
    begin
      create role symphony_ingest nologin;
      comment on role symphony_ingest is 'Symphony: producers. May enqueue.';
    exception when duplicate_object or unique_violation then null;
    end;
  end if;
  if to_regrole('symphony_executor') is null then
    begin
      create role symphony_executor nologin;
      comment on role symphony_executor is 'Symphony: relayers. May claim, complete, renew, release and repair.';
    exception when duplicate_object or unique_violation then null;
    end;
  end if;
  if to_regrole('symphony_operator') is null then
    begin
      create role symphony_operator nologin;
      comment on role symphony_operator is 'Symphony: operators. May redrive, resolve, set rail policy, pause and resume.';
    exception when duplicate_object or unique_violation then null;
    end;
  end if;
  if to_regrole('symphony_readonly') is null then
    begin
      create role symphony_readonly nologin;
      comment on role symphony_readonly is 'Symphony: dashboards and support. May read all but payloads and lease tokens.';
    exception when duplicate_object or unique_violation then null;
    end;
  end if;
  if to_regrole('symphony_auditor') is null then
    begin
      create role symphony_auditor nologin;
      comment on role symphony_auditor is 'Symphony: auditors. May read, payloads included.';
    exception when duplicate_object or unique_violation then null;
    end;
  end if;
  if to_regrole('symphony_auth') is null then
    begin
      create role symphony_auth nologin;
      comment on role symphony_auth is 'Symphony: authentication services. May do nothing here.';
    exception when duplicate_object or unique_violation then null;
    end;
  end if;
exception
  when insufficient_privilege then
    raise exception '% may not create the roles of Symphony', current_user
      using errcode = '42501',
            hint = 'Install as a user with CREATEROLE, or let a DBA create symphony_control, symphony_ingest, '
                   'symphony_executor, symphony_operator, symphony_readonly, symphony_auditor and '
                   'symphony_auth (all NOLOGIN) and grant symphony_control to you.';
end
$roles$;
