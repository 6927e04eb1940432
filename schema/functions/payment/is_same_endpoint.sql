-- Says whether two endpoints of a rail are the same bank: one name, or declared the same by operators.
--
-- A declaration holds in both directions, and from pair to pair: a bank that moved twice needs two declarations.
-- Locks: nothing. For: endpoint_of_unknown_outcome, declare_same_endpoint.
create or replace function symphony.is_same_endpoint(p_rail_type text, p_endpoint text, p_other text)
  returns boolean
  language sql
  stable
  set search_path = pg_catalog, symphony, pg_temp
as $$
  with recursive same (endpoint) as (
    select p_endpoint
    union
    select case when a.endpoint = s.endpoint then a.same_as else a.endpoint end
    from same s
    join payment_endpoint_aliases a
      on a.rail_type = p_rail_type
     and s.endpoint in (a.endpoint, a.same_as)
  )
  select exists (select from same s where s.endpoint = p_other)
$$;

comment on function symphony.is_same_endpoint(text, text, text) is
  'Whether two endpoints of a rail are the same bank, by their names or by what operators declared.';
