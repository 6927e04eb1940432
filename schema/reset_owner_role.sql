-- Ends the install: resets the owner's role, and revokes the membership that assume_owner_role.sql granted.
reset role;

do $reset_owner_role$
begin
  if current_setting('symphony.membership_granted_for_install', true) = 'yes' then
    revoke symphony_control from current_user;
  end if;
end
$reset_owner_role$;
