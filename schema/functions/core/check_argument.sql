-- Checks a text argument: refuses null, blank text and text that is too long.
--
-- Locks: nothing. Raises: P7005 with the name of the argument. For: the other functions.
create or replace function symphony.check_argument(p_name text, p_value text, p_longest int)
  returns void
  language plpgsql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  if p_value is null then
    raise exception '% must not be null', p_name using errcode = 'P7005';
  elsif p_value !~ '[^[:space:]]' then
    raise exception '% must not be blank', p_name using errcode = 'P7005';
  elsif char_length(p_value) > p_longest then
    raise exception '% must have at most % characters, not %', p_name, p_longest, char_length(p_value)
      using errcode = 'P7005';
  end if;
end
$$;

comment on function symphony.check_argument(text, text, int) is 'Raises P7005 for a text argument that is null, blank or too long.';
