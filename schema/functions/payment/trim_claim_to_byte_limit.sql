-- Returns the first of a claim's rows whose payloads fit into the bytes that the claim may still return.
--
-- The first row is kept in any case if the claim has no other, so that every claim makes progress. bytes exceeds the
-- budget if a row was left out, so that the claim knows that it is full.
-- Locks: nothing; the caller has locked the rows. For: claim_outbox_batch.
create or replace function symphony.trim_claim_to_byte_limit(
  p_row_ids   tid[],
  p_budget    bigint,
  p_is_first  boolean,
  out row_ids tid[],
  out bytes   bigint)
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
    select case when pg_column_compression(p.payload) is null then pg_column_size(p.payload) else uncompressed_size(p.payload) end
    from unnest(p_row_ids) with ordinality as f (row_id, place)
    cross join lateral (
      select p.payload
      from payment_outbox_pending p
      where p.ctid = f.row_id
      limit 1
    ) p
    order by f.place);
  v_fit   int := rows_within_byte_limit(v_sizes, p_budget);
begin
  if v_fit = 1 and v_sizes[1] > p_budget and not p_is_first then
    v_fit := 0;
  end if;
  row_ids := p_row_ids[1 : v_fit];
  bytes := case
    when v_fit < cardinality(p_row_ids) then p_budget + 1
    else (select sum(s.size) from unnest(v_sizes) as s (size))
  end;
end
$$;

comment on function symphony.trim_claim_to_byte_limit(tid[], bigint, boolean) is
  'The first of these rows whose payloads fit into a budget of bytes.';
