-- The time before which this session need not look for due rows of a rail; -infinity unless it was remembered.
--
-- While an old snapshot lives anywhere in the database, the rows that ended since cannot be cleaned away,
-- and their entries stand at the front of the claim order, where every claim would walk over them. A claim
-- that had to walk far remembers where the living begin, for a while; see remember_claim_floor.
-- Locks: nothing. For: claim_outbox_batch.
create or replace function symphony.claim_floor(p_rail_type text)
  returns timestamptz
  language plpgsql
  stable
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_floor jsonb;
begin
  v_floor := current_setting('symphony.claim_floors', true)::jsonb -> p_rail_type;
  if (v_floor ->> 'until')::timestamptz > clock_timestamp() then
    return least((v_floor ->> 'from')::timestamptz, now() - interval '1 second');
  end if;
  return '-infinity';
exception when data_exception then
  -- The setting is the session's own, and anybody can write nonsense into it.
  return '-infinity';
end
$$;

comment on function symphony.claim_floor(text) is 'Where this session starts to look for due rows of a rail.';
