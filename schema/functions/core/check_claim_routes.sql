-- Raises P7005 unless p_routes are routes of a claim: at most 1,000 objects, each with a limit from 0 to 10,000.
--
-- Locks: nothing. Raises: P7005. For: the claims of events and metadata by destination.
create or replace function symphony.check_claim_routes(p_routes jsonb)
  returns void
  language plpgsql
  immutable
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  if (jsonb_typeof(p_routes) = 'array') is not true or jsonb_array_length(p_routes) > 1000 then
    raise exception 'p_routes must be an array of at most 1000 routes' using errcode = 'P7005';
  elsif exists (
    select
    from jsonb_array_elements(p_routes) r
    where (jsonb_typeof(r) = 'object' and jsonb_typeof(r -> 'limit') = 'number' and r ->> 'limit' ~ '^([0-9]{1,4}|10000)$') is not true) then
    raise exception 'each of p_routes must be an object with a limit from 0 to 10000' using errcode = 'P7005';
  end if;
end
$$;

comment on function symphony.check_claim_routes(jsonb) is 'Raises P7005 unless the routes of a claim are objects with a limit.';
