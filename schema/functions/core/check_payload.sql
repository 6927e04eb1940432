-- Refuses a payload that is missing, larger than its lane allows, or nested deeper than 100 levels, naming the argument.
--
-- The size is that of the value once it is decompressed: a value from a table's column may be compressed, and a relayer holds it
-- decompressed. Common parsers of JSON stop at 128 levels. 100 levels take 800 bytes, so a small value is not searched.
-- Locks: nothing. Raises: P7005. For: the functions that take a payload.
create or replace function symphony.check_payload(p_name text, p_value jsonb, p_limit int)
  returns void
  language plpgsql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_size int := pg_column_size(p_value);
begin
  if p_value is null then
    raise exception '% must not be null', p_name using errcode = 'P7005';
  end if;
  if pg_column_compression(p_value) is not null then
    v_size := raw_size(p_value);
  end if;
  if v_size > p_limit then
    raise exception '% must have at most % bytes, not %', p_name, p_limit, v_size
      using errcode = 'P7005',
            hint = 'Keep a large document in a table or store of your own, and its key in the payload.';
  elsif v_size >= 800 and jsonb_path_exists(p_value, '$.**{101 to last}') then
    raise exception '% must have at most 100 levels of nesting', p_name using errcode = 'P7005';
  end if;
end
$$;

comment on function symphony.check_payload(text, jsonb, int) is
  'Raises P7005 for a payload that is null, too large once it is decompressed, or nested too deeply.';
