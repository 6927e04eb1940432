-- Moves claimed entries to PUBLISHED in one statement: the only function that sets PUBLISHED.
--
-- Returns the entries that were claimed under these tokens. The others have not changed; try_complete_metadata_claim
-- explains why. Each id must be given once. Only PROCESSING entries have a token, so the statement compares the token
-- alone: a condition on the status could make a plan read all claims for each id. One statement for many entries is
-- faster, because PostgreSQL reads and compiles the table's constraints and index predicates once per statement.
-- Locks: the rows, in the order of their ids. For: complete_metadata_batch and try_complete_metadata_claim.
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

comment on function symphony.publish_metadata_claims(uuid[], uuid[]) is
  'Moves claims to PUBLISHED, and returns those that were held under these tokens.';
