-- Returns the uncompressed size of a jsonb value in bytes: what a relayer that claims it has to hold.
--
-- pg_column_size returns the stored size, and a value from a table may be compressed to a hundredth. Extracting the
-- path '{}' returns the value itself, uncompressed. Check pg_column_compression first: for a value that is not
-- compressed, pg_column_size is right and costs nothing.
-- Locks: nothing. For: the functions that take or return a payload.
create or replace function symphony.uncompressed_size(p_value jsonb)
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

comment on function symphony.uncompressed_size(jsonb) is 'Bytes of a jsonb value, uncompressed.';
