-- Checks that the transaction is READ COMMITTED, because the calling function must decide on the newest state.
--
-- In REPEATABLE READ and SERIALIZABLE a statement still sees the old snapshot after it has waited for a lock. A
-- completion would miss the row that a claim has just parked behind it. An operator would redrive a payment that
-- another operator has just resolved as PAID.
-- Locks: nothing. Raises: 25000. For: the other functions.
create or replace function symphony.check_isolation()
  returns void
  language plpgsql
  stable
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    raise exception 'this function needs READ COMMITTED, but the transaction is %', upper(current_setting('transaction_isolation'))
      using errcode = '25000',
            hint = 'Call it in a READ COMMITTED transaction, or set default_transaction_isolation of the login to read committed.';
  end if;
end
$$;

comment on function symphony.check_isolation() is
  'Raises 25000 outside READ COMMITTED, where a decision would rest on an old snapshot.';
