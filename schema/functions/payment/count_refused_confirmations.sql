-- Counts the confirmations that were ever refused. Rows are never removed, so the number never falls.
--
-- Locks: nothing. Raises: nothing. For: symphony_executor, symphony_operator, symphony_readonly, symphony_auditor.
create or replace function symphony.count_refused_confirmations()
  returns bigint
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  return (select count(*) from payment_refused_confirmations c);
end
$$;

comment on function symphony.count_refused_confirmations() is 'How many confirmations of rails were ever refused.';
