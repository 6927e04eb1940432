-- Returns an endpoint to which an earlier attempt that may have paid went, if it is another than the given one; null if there
-- is none.
--
-- Only the bank that got a request knows what became of it. Another one answers "never seen" about a payment that the first
-- has made. Counted are all attempts of the outbox, and of the outboxes before it that redrives link with it: key_remembered
-- counts them too. An attempt whose worker named no endpoint has the endpoint 'unnamed', which is no other one's: a worker of
-- plain SQL that never names any goes on as before, and a worker that does name one stops.
--
-- Of an attempt of an earlier epoch every outcome counts, a known one too: a later attempt may have gone to the same endpoint and
-- have been lost with the epoch.
-- Locks: nothing. For: advise_on_unknown_outcome.
create or replace function symphony.endpoint_of_unknown_outcome(p_outbox_id uuid, p_rail_type text, p_endpoint text)
  returns text
  language plpgsql
  stable
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
begin
  return (
    with recursive redrives as (
      select p_outbox_id as outbox_id
      union all
      select o.outbox_id
      from redrives r
      cross join lateral (
        select o.outbox_id
        from payment_outbox_operations o
        where o.new_outbox_id = r.outbox_id
        limit 1
      ) o
    )
    select u.endpoint
    from (
      select distinct coalesce(a.endpoint, 'unnamed') as endpoint
      from redrives r
      cross join lateral (
        select a.endpoint, a.error_code, a.epoch
        from payment_outbox_attempts a
        where a.outbox_id = r.outbox_id
        order by a.attempt_no
        limit 20
      ) a
      where a.error_code in (select c.error_code from unknown_outcome_codes c)
         or a.epoch <> (select r.epoch from payment_rails r where r.rail_type = p_rail_type)
    ) u
    where u.endpoint <> p_endpoint
      and not is_same_endpoint(p_rail_type, p_endpoint, u.endpoint)
    order by u.endpoint
    limit 1);
end
$$;

comment on function symphony.endpoint_of_unknown_outcome(uuid, text, text) is
  'Another endpoint than the given one to which an attempt of this payment went that has an unknown outcome or is of an earlier epoch; null if there is none.';
