-- Ends the install: resumes the role that assume_owner_role.sql found, and revokes the membership that it granted.
do $reset_owner_role$
begin
  perform set_config('role', current_setting('symphony.role_before_install'), true);
  if current_setting('symphony.membership_granted_for_install', true) = 'yes' then
    revoke symphony_control from current_user;
  end if;
end
$reset_owner_role$;
