-- Locks the rows that a claim may lease behind the heads that it has locked on an ordered rail.
--
-- A head and its followers are a run: the rows of one participant that follow each other without a pending row between
-- them. The worker dispatches a run one row after the other, in the order of sequence_id, and starts none before the one
-- ahead of it has ended as DISPATCHED. A follower is due, unleased, not attempted before, of the current epoch, so its
-- outcome is certain, and not behind a failure that holds the stream; it may be parked. A run has
-- at most 16 rows, so that a worker that dies leaves few unknown outcomes. There is no run on a rail whose on_unknown is
-- STOP or whose max_attempts is 1, because an operator would have to resolve rows that the dead worker never sent.
--
-- Every head gets its first follower before any gets its second. So each prefix of the heads and row_ids is without a
-- gap, and a claim may drop the rest. A row that another session has locked ends its run before it. bytes is an upper
-- bound of the payloads. No row can appear inside a run later: sequence order is commit order.
-- rail_type || '' keeps the plan from the index of the claim order.
-- Locks: the rows it returns, and some behind them (SKIP LOCKED). For: claim_outbox_batch.
create or replace function symphony.lock_run_followers(
  p_rail_type text,
  p_heads     tid[],
  p_max_rows  int,
  out row_ids tid[],
  out bytes   bigint)
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
declare
  c_max_followers constant int := 15;
  v_may_run       boolean;
  v_epoch         bigint;
  v_holds         boolean;
begin
  row_ids := '{}';
  bytes := 0;
  select r.on_unknown <> 'STOP' and r.max_attempts > 1, r.epoch, r.on_failure = 'HOLD'
  into v_may_run, v_epoch, v_holds
  from payment_rails r
  where r.rail_type = p_rail_type;
  if p_max_rows <= 0 or not v_may_run then
    return;
  end if;

  with candidates as materialized (
    select f.row_id, f.place, h.head_place
    -- With more heads than rows to add, the last heads get no follower.
    from unnest(p_heads[1 : p_max_rows]) with ordinality as h (row_id, head_place)
    cross join lateral (
      select p.participant_id, p.sequence_id
      from payment_outbox_pending p
      where p.ctid = h.row_id
      limit 1
    ) p
    cross join lateral (
      select s.row_id, row_number() over w as place, bool_and(s.may_follow) over w as is_unbroken
      from (
        select n.ctid as row_id, n.sequence_id,
               n.lease_token is null and n.attempt_count = 0 and n.epoch = v_epoch and n.next_attempt_at <= now()
               and not (v_holds and exists (
                 select
                 from payment_stream_holds h
                 where h.participant_id = n.participant_id
                   and h.rail_type = p_rail_type
                   and h.sequence_id < n.sequence_id)) as may_follow
        from payment_outbox_pending n
        where n.participant_id = p.participant_id
          and n.rail_type || '' = p_rail_type
          and n.sequence_id > p.sequence_id
        order by n.sequence_id
        limit least(c_max_followers, p_max_rows)
      ) s
      window w as (order by s.sequence_id)
    ) f
    where f.is_unbroken
    order by f.place, h.head_place
    limit p_max_rows
  ),
  -- A candidate that changed after the snapshot is not locked, or has another ctid: its run ends before it.
  locked as materialized (
    select p.ctid as row_id,
           case when pg_column_compression(p.payload) is null then pg_column_size(p.payload) else 262144 end as bytes
    from payment_outbox_pending p
    where p.ctid = any (array(select c.row_id from candidates c))
      and p.lease_token is null
      and p.attempt_count = 0
      and p.next_attempt_at <= now()
    for no key update skip locked
  )
  select coalesce(array_agg(r.row_id order by r.place, r.head_place), '{}'), coalesce(sum(r.bytes), 0)
  into row_ids, bytes
  from (
    select c.row_id, c.place, c.head_place, l.bytes,
           bool_and(l.row_id is not null) over (partition by c.head_place order by c.place) as is_unbroken
    from candidates c
    left join locked l on l.row_id = c.row_id
  ) r
  where r.is_unbroken;
end
$$;

comment on function symphony.lock_run_followers(text, tid[], int) is
  'Locks the rows that a claim may lease behind the heads that it has locked on an ordered rail; at most 15 behind each.';
