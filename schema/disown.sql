-- Stop being the owner: the counterpart of own.sql, and the end of every install.
reset role;

do $disown$
begin
  if current_setting('symphony.membership_borrowed', true) = 'yes' then
    revoke symphony_control from current_user;
  end if;
end
$disown$;
