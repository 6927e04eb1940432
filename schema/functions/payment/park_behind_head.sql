-- Parks rows of an ordered rail that wait behind an earlier row of their participant, or behind a failure that holds the
-- stream, so that claims skip them.
--
-- It reads the first rows of the claim order. Parking a row and unparking it are two updates that write every index, so
-- it parks a row only if that row waits for longer than a moment: its head waits for a retry, or has been leased for a
-- second, or is at least 16 sequence numbers ahead. A failure that holds the stream waits for an operator. p_claimed has the rows that the caller is about to lease. Parking
-- saves scans; it does not enforce the order: a claim checks the order of the rows that it takes, parked or not.
--
-- The completion that ends the predecessor unparks a row, and so does the end of a hold. So a row may be parked only behind
-- a head or a hold that still exists: this locks it FOR SHARE, and what ends it waits and then sees the parked row. A head that is being
-- changed is locked already; rows behind it are not parked. FOR KEY SHARE would not do: it is compatible with an
-- UPDATE under way, so PostgreSQL would follow the head's versions and wait at a stronger lock, in spite of SKIP
-- LOCKED. Both transactions are short, and neither waits for a producer. Returns how many rows were parked; null if
-- none was, because each head and each hold was locked.
-- rail_type || '' keeps the plan from the index of the claim order.
-- Locks: the rows it parks, and their heads or holds. For: claim_outbox_batch.
create or replace function symphony.park_behind_head(
  p_rail_type     text,
  p_window        int,
  p_low_watermark timestamptz,
  p_claimed       tid[])
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
#variable_conflict use_column
declare
  v_waiting      uuid[];
  -- The outbox that each waits for: the head, or the failure that holds the stream.
  v_blockers     uuid[];
  v_locked       uuid[];
  v_holds        boolean := (select r.on_failure = 'HOLD' from payment_rails r where r.rail_type = p_rail_type);
  -- The holds among them, as parallel arrays.
  v_participants text[];
  v_sequence_ids bigint[];
  v_parked       int;
begin
  select array_agg(w.outbox_id), array_agg(w.blocker_id), array_agg(w.participant_id) filter (where w.hold_sequence_id is not null),
         array_agg(w.hold_sequence_id) filter (where w.hold_sequence_id is not null)
  into v_waiting, v_blockers, v_participants, v_sequence_ids
  from (
    select p.outbox_id, p.participant_id, coalesce(s.outbox_id, h.outbox_id) as blocker_id, s.sequence_id as hold_sequence_id
    from (
      select p.outbox_id
      from payment_outbox_pending p
      where p.rail_type = p_rail_type
        and not p.parked
        and p.next_attempt_at between p_low_watermark and now()
        and p.lease_token is null
      order by p.next_attempt_at, p.created_at
      limit p_window
    ) f
    join payment_outbox_pending p on p.outbox_id = f.outbox_id
    cross join lateral (
      select h.outbox_id, h.sequence_id, h.claimed_at,
             h.lease_token is not null or coalesce(h.ctid = any (p_claimed), false) as is_leased
      from payment_outbox_pending h
      where h.participant_id = p.participant_id
        and h.sequence_id >= coalesce((
          select m.sequence_id
          from payment_stream_low_marks m
          where m.participant_id = p.participant_id
            and m.rail_type = p.rail_type), 1)
        and h.rail_type || '' = p.rail_type
      order by h.sequence_id
      limit 1
    ) h
    left join lateral (
      select s.outbox_id, s.sequence_id
      from payment_stream_holds s
      where v_holds
        and s.participant_id = p.participant_id
        and s.rail_type = p.rail_type
        and s.sequence_id < p.sequence_id
      order by s.sequence_id
      limit 1
    ) s on true
    where (s.outbox_id is not null
           or h.outbox_id <> p.outbox_id
              and (not h.is_leased or h.claimed_at < now() - interval '1 second' or p.sequence_id >= h.sequence_id + 16))
      and not p.parked
      and p.lease_token is null
      and not coalesce(p.ctid = any (p_claimed), false)
    for no key update of p skip locked
  ) w;
  if v_waiting is null then
    return 0;
  end if;

  v_locked := array(
    select p.outbox_id
    from payment_outbox_pending p
    where p.outbox_id = any (array(select distinct b.outbox_id from unnest(v_blockers) as b (outbox_id)))
    for share skip locked);
  if v_participants is not null then
    v_locked := v_locked || array(
      select s.outbox_id
      from (
        select distinct b.participant_id, b.sequence_id
        from unnest(v_participants, v_sequence_ids) as b (participant_id, sequence_id)
      ) b
      join payment_stream_holds s
        on s.participant_id = b.participant_id
       and s.rail_type = p_rail_type
       and s.sequence_id = b.sequence_id
      for share of s skip locked);
  end if;
  if cardinality(v_locked) = 0 then
    return null;
  end if;

  update payment_outbox_pending p
  set parked = true
  where p.outbox_id = any (array(
    select w.outbox_id
    from unnest(v_waiting, v_blockers) as w (outbox_id, blocker_id)
    where w.blocker_id in (select l.outbox_id from unnest(v_locked) as l (outbox_id))));
  get diagnostics v_parked = row_count;
  return v_parked;
end
$$;

comment on function symphony.park_behind_head(text, int, timestamptz, tid[]) is
  'Parks rows that wait behind an earlier row of their participant on an ordered rail; returns how many.';
