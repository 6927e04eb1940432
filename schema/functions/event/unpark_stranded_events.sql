-- Puts back parked events that have no unprocessed event in front, which no completion has put back.
--
-- One case leads there: a worker without order claims a parked event and rolls back, and meanwhile the event in front of
-- it is completed, which must not wait for that claim. So each claim in order calls this first. It looks at the first
-- parked event of at most 1,000 aggregates, once per second and session; the next call of the session continues behind
-- them. See docs/decisions/0010-parked-events.md.
-- Locks: the rows that it puts back; it waits for none. Returns how many those were. For: claim_events_in_order.
create or replace function symphony.unpark_stranded_events()
  returns int
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set enable_material = off
as $$
declare
  -- When this session last looked, and the id and type of the last aggregate if there may be more behind it.
  v_last      jsonb;
  v_last_type text;
  v_last_id   text;
  v_stranded  bigint[];
begin
  begin
    v_last := nullif(current_setting('symphony.checked_parked_events', true), '')::jsonb;
    if to_timestamp((v_last ->> 0)::float8) between now() - interval '1 second' and now() then
      return 0;
    end if;
  exception when data_exception then
    -- Any session can set the setting to an invalid value.
    v_last := null;
  end;
  -- An aggregate is found as what comes next in outbox_parked, so many parked events of one cost nothing.
  with recursive firsts as (
    (select p.aggregate_type, p.aggregate_id, p.id, 1 as step
     from m10_recovery.outbox_unprocessed p
     where p.is_parked
       and (p.aggregate_id, p.aggregate_type) > (coalesce(v_last ->> 1, ''), coalesce(v_last ->> 2, ''))
     order by p.aggregate_id, p.aggregate_type, p.id
     limit 1)
    union all
    select n.aggregate_type, n.aggregate_id, n.id, f.step + 1
    from firsts f
    cross join lateral (
      select p.aggregate_type, p.aggregate_id, p.id
      from m10_recovery.outbox_unprocessed p
      where p.is_parked
        and (p.aggregate_id, p.aggregate_type) > (f.aggregate_id, f.aggregate_type)
      order by p.aggregate_id, p.aggregate_type, p.id
      limit 1
    ) n
    where f.step < 1000
  )
  select array_agg(f.id) filter (where f.id = (
           select e.id
           from m10_recovery.outbox_unprocessed e
           where (e.aggregate_type, e.aggregate_id) >= (f.aggregate_type, f.aggregate_id)
           order by e.aggregate_type, e.aggregate_id, e.id
           limit 1)),
         max(f.aggregate_id) filter (where f.step = 1000),
         max(f.aggregate_type) filter (where f.step = 1000)
  into v_stranded, v_last_id, v_last_type
  from firsts f;
  perform set_config('symphony.checked_parked_events', jsonb_build_array(extract(epoch from now()), v_last_id, v_last_type)::text, false);
  return case when v_stranded is null then 0 else unpark_next_events(v_stranded) end;
end
$$;

comment on function symphony.unpark_stranded_events() is
  'Puts parked events that have nothing in front of them back into the order of claims.';
