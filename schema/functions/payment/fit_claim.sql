-- Of the rows that a claim has found, in its order, those whose payloads fit into what it may still bring.
--
-- The first is kept in any case where the claim has nothing else, so that every claim makes progress. bytes is more than the budget where a row was left
-- out, so that the claim knows that it is full.
-- Locks: nothing; the caller has locked the rows. For: claim_outbox_batch.
create or replace function symphony.fit_claim(
  p_places   tid[],
  p_budget   bigint,
  p_is_first boolean,
  out places tid[],
  out bytes  bigint)
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
as $$
declare
  v_sizes constant int[] := array(
    select case when pg_column_compression(p.payload) is null then pg_column_size(p.payload) else raw_size(p.payload) end
    from unnest(p_places) with ordinality as f (place, number)
    cross join lateral (
      select p.payload
      from payment_outbox_pending p
      where p.ctid = f.place
      limit 1
    ) p
    order by f.number);
  v_fit   int := rows_within(v_sizes, p_budget);
begin
  if v_fit = 1 and v_sizes[1] > p_budget and not p_is_first then
    v_fit := 0;
  end if;
  places := p_places[1 : v_fit];
  bytes := case
    when v_fit < cardinality(p_places) then p_budget + 1
    else (select sum(s.size) from unnest(v_sizes) as s (size))
  end;
end
$$;

comment on function symphony.fit_claim(tid[], bigint, boolean) is 'The first of these rows whose payloads fit into a budget of bytes.';
