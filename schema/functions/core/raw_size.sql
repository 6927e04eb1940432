-- How many bytes a jsonb value has once it is decompressed: what a relayer that claims it has to hold.
--
-- pg_column_size says what the stored datum takes, and a value that comes from a table's column may be compressed, a hundred times
-- smaller. Extracting the path '{}' returns the value itself, decompressed. Ask pg_column_compression first: for a value that is not
-- compressed pg_column_size is enough, and costs nothing.
-- Locks: nothing. For: the functions that take or hand out a payload.
create or replace function symphony.raw_size(p_value jsonb)
  returns int
  language plpgsql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  return pg_column_size(p_value #> '{}');
end
$$;

comment on function symphony.raw_size(jsonb) is 'Bytes of a jsonb value, decompressed.';
