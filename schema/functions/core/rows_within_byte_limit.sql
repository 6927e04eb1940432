-- Returns how many of a claim's first rows fit into a limit of bytes: at least one, so that every claim makes
-- progress.
--
-- Locks: nothing. For: the claim functions.
create or replace function symphony.rows_within_byte_limit(p_sizes int[], p_limit bigint)
  returns int
  language plpgsql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_sum bigint := 0;
begin
  for i in 1 .. coalesce(cardinality(p_sizes), 0) loop
    v_sum := v_sum + p_sizes[i];
    if v_sum > p_limit then
      return greatest(1, i - 1);
    end if;
  end loop;
  return coalesce(cardinality(p_sizes), 0);
end
$$;

comment on function symphony.rows_within_byte_limit(int[], bigint) is
  'How many rows of these sizes, from the first on, fit into a limit of bytes; at least one.';
