-- Refuses endpoints per rail that are not an object of names.
--
-- Locks: nothing. Raises: P7005. For: claim_outbox_batch.
create or replace function symphony.check_claim_endpoints(p_endpoints jsonb)
  returns void
  language plpgsql
  immutable
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  if p_endpoints is null or jsonb_typeof(p_endpoints) <> 'object' then
    raise exception 'p_endpoints must be an object of endpoints per rail' using errcode = 'P7005';
  elsif exists (
    select
    from jsonb_each(p_endpoints) e
    where (jsonb_typeof(e.value) = 'string' and e.value #>> '{}' ~ '\S' and char_length(e.value #>> '{}') <= 200) is not true) then
    raise exception 'each value of p_endpoints must be a text of at most 200 characters that is not blank' using errcode = 'P7005';
  end if;
end
$$;

comment on function symphony.check_claim_endpoints(jsonb) is 'Raises P7005 unless these are endpoints per rail: an object of texts of at most 200 characters.';
