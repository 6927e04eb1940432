-- Records that the second store has an entry: PROCESSING to PUBLISHED, which is terminal, for the holder of the claim.
--
-- Locks: the row. Raises: P0002, P7001, P7002, P7003, P7005, 55P03 after 5 s behind a lock. For: symphony_executor.
create or replace function symphony.mark_metadata_published(p_id uuid, p_token uuid)
  returns void
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set lock_timeout = '5s'
as $$
begin
  perform complete_metadata_claim(p_id, p_token, 'PUBLISHED', null);
end
$$;

comment on function symphony.mark_metadata_published(uuid, uuid) is 'PROCESSING to PUBLISHED, for the holder of the claim.';
