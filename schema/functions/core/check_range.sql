-- Checks a number argument: refuses null and numbers out of range.
--
-- Locks: nothing. Raises: P7005 with the name of the argument and its range. For: the other functions.
create or replace function symphony.check_range(p_name text, p_value bigint, p_least bigint, p_most bigint)
  returns void
  language plpgsql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  if p_value is null or p_value not between p_least and p_most then
    raise exception '% must be from % to %, not %', p_name, p_least, p_most, coalesce(p_value::text, 'null')
      using errcode = 'P7005';
  end if;
end
$$;

comment on function symphony.check_range(text, bigint, bigint, bigint) is 'Raises P7005 for a number argument that is null or out of range.';
