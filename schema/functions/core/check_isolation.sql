-- Refuses to decide anything on an old snapshot.
--
-- In REPEATABLE READ or SERIALIZABLE a statement that has waited for a lock still sees what was there
-- before: a completion would not see the row that a claim has just parked behind it, and an operator would
-- redrive what was found PAID a moment ago. Waiting and then looking again needs READ COMMITTED.
-- Locks: nothing. Raises: 25000. For: the other functions.
create or replace function symphony.check_isolation()
  returns void
  language plpgsql
  stable
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'this needs READ COMMITTED, not %', upper(current_setting('transaction_isolation'))
      using errcode = '25000',
            hint = 'It is decided on the newest state. Call it in a transaction of its own, or set default_transaction_isolation of the login to read committed.';
  end if;
end
$$;

comment on function symphony.check_isolation() is 'Raises 25000 outside READ COMMITTED, where a decision would rest on an old snapshot.';
