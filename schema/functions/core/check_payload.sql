-- Checks a payload: refuses null, more bytes than the lane allows, and more than 100 levels of nesting.
--
-- The size is that of the uncompressed value: a value from a table may be compressed, and a relayer holds it
-- uncompressed. Common JSON parsers stop at 128 levels. 100 levels take 800 bytes, so a smaller value is not searched.
-- Locks: nothing. Raises: P7005 with the name of the argument. For: the functions that take a payload.
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
    v_size := uncompressed_size(p_value);
  end if;
  if v_size > p_limit then
    raise exception '% must have at most % bytes, not %', p_name, p_limit, v_size
      using errcode = 'P7005',
            hint = 'Keep a large document in another table or store, and put its key into the payload.';
  elsif v_size >= 800 and jsonb_path_exists(p_value, '$.**{101 to last}') then
    raise exception '% must have at most 100 levels of nesting', p_name using errcode = 'P7005';
  end if;
end
$$;

comment on function symphony.check_payload(text, jsonb, int) is
  'Raises P7005 for a payload that is null, too large when uncompressed, or nested too deeply.';
