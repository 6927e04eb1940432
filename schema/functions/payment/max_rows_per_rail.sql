-- Returns how many rows of one kind a bounded read takes of each rail, so that many rails cost no more than two.
--
-- Together the rails have at most twice p_max_rows, as long as each has a hundred. Null is no bound.
-- Locks: nothing. Raises: P7005. For: payment_backlog, payment_leases and repair_expired_leases.
create or replace function symphony.max_rows_per_rail(p_max_rows int)
  returns int
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  if p_max_rows is null then
    return null;
  end if;
  perform check_range('p_max_rows', p_max_rows, 1, 1000000);
  return least(p_max_rows, greatest(100, 2 * p_max_rows / greatest(1, (select count(*) from payment_rails))));
end
$$;

comment on function symphony.max_rows_per_rail(int) is
  'How many rows of one kind a bounded read takes of each rail; null is no bound.';
