-- Ends claims as PUBLISHED, all of them in one statement: the one place where that happens.
--
-- Returns those that were held under these tokens; of the others nothing has changed, and settle_metadata_claim has the words. An id stands there once.
-- Only what is PROCESSING has a token, so that it alone is asked for: by the status a plan could walk all claims for each id.
-- A statement that writes to the table reads and compiles its constraints and the conditions of its indexes anew: for each entry by itself
-- that would be most of the work.
-- Locks: the rows, in the order of their ids. For: complete_metadata_batch and settle_metadata_claim.
create or replace function symphony.publish_metadata_claims(p_ids uuid[], p_tokens uuid[])
  returns table (id uuid, retry_count int)
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
as $$
#variable_conflict use_column
begin
  return query
    update metadata_outbox o
    set status = 'PUBLISHED',
        claim_token = null,
        processed_at = now(),
        updated_at = now()
    from (
      select h.id
      from unnest(p_ids, p_tokens) as g (id, token)
      join metadata_outbox h on h.id = g.id
      where h.claim_token = g.token
      order by h.id
      for no key update of h
    ) h
    where o.id = h.id
    returning o.id, o.retry_count;
end
$$;

comment on function symphony.publish_metadata_claims(uuid[], uuid[]) is 'Ends claims as PUBLISHED, and returns those that were held under these tokens.';
