-- Hands a batch of due instructions to one worker, each under a fresh lease.
--
-- Two workers must never hold the same row, and a dead worker must not hold one for ever: the row lock
-- gives the first, the lease the second. A lease that expired is ended in the ledger before it is
-- granted anew, by the mechanism that repair uses.
--
-- It looks rail by rail, so that a paused rail, or one at its cap, costs nothing however much waits
-- there. What each rail may give follows from the merged order of all of them: next_attempt_at, then
-- created_at. On an ordered rail it takes the heads of streams only; sequence order is commit order, so
-- whoever sees a row sees every earlier one. The planner's choices are pinned, because a plan made while the table was empty
-- would be the wrong one a second later.
-- Payloads of one claim add up to at most claim_byte_limit(), decompressed; what does not fit waits for the next claim. A row whose outbox has ended in
-- the ledger already is quarantined instead of handed out.
-- A worker that has no room for some rails says so by the setting symphony.claim_rooms; see claim_rooms.
-- Locks: the rows it returns; on capped rails the rail's row, passing by rails whose row another claim holds; payment_rails in ROW SHARE mode. Never
-- waits for a producer, for another claim at most 400 ms, and for nobody longer than 5 s.
-- Raises: P7005, 25000 outside READ COMMITTED, and 55P03 behind a lock that is not let go. For: symphony_executor.
create or replace function symphony.claim_outbox_batch(p_batch_size int, p_worker_id text, p_lease_seconds int)
  returns table (
    outbox_id        uuid,
    instruction_id   text,
    participant_id   text,
    sequence_id      bigint,
    idempotency_key  text,
    rail_type        text,
    payload          jsonb,
    attempt_count    int,
    lease_token      uuid,
    lease_expires_at timestamptz,
    outcome_unknown  boolean)
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set lock_timeout = '5s'
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set enable_material = off
as $$
#variable_conflict use_column
declare
  v_window   constant int := 1000;
  v_index    constant oid := 'payment_outbox_pending_claim_order'::regclass;
  -- Whether this session has remembered a floor: as a rule it has not, and need not ask for each rail.
  v_floored  constant boolean := current_setting('symphony.claim_floors', true) <> '';
  v_rail     record;
  v_room     int;
  -- What the caller has room for, by rail, less what it was given.
  v_rooms    jsonb;
  v_parked   int;
  v_walked   bigint;
  -- The rails that have something due and room for it, in parallel.
  v_rails    text[];
  v_ordered  boolean[];
  v_floors   timestamptz[];
  v_quotas   int[];
  -- How many rows of an ordered rail are looked at.
  v_reaches  int[];
  v_capped   text[] := '{}';
  -- Free places of a capped rail; null if another claim holds its row. Whether there was such a rail, in which round rails may be locked, and
  -- whether this one may wait for one of them.
  v_seats    int;
  v_busy     boolean := false;
  v_locking  int := 1;
  v_waits    boolean := false;
  -- What is locked in this round.
  v_found    tid[];
  v_places   tid[];
  -- Those of them whose lease expired.
  v_expired  tid[];
  v_zombies  uuid[];
  v_ended    boolean;
  v_taken    int := 0;
  v_wanted   int;
  v_granted  int;
  -- At most how many bytes the payloads that were found have, and how many more the claim may bring; negative once something did not fit.
  v_bytes    bigint;
  v_budget   bigint := claim_byte_limit();
begin
  perform check_range('p_batch_size', p_batch_size, 1, 1000);
  perform check_argument('p_worker_id', p_worker_id, 200);
  perform check_range('p_lease_seconds', p_lease_seconds, 1, 3600);
  perform check_isolation();
  perform insist_on_durability();
  v_rooms := claim_rooms();
  -- Policy is constant while this is decided; see take_rail_policy_lock.
  lock table payment_rails in row share mode;

  -- One round is enough unless other claims take what our quotas were made for, or what we found has ended.
  for v_round in 1 .. 20 loop
    v_rails := '{}';
    v_ordered := '{}';
    v_floors := '{}';
    v_quotas := '{}';
    v_places := '{}';
    v_ended := false;
    v_wanted := p_batch_size - v_taken;

    for v_rail in
      select r.rail_type, r.ordered, r.max_in_flight, f.floor
      from (
        select r.*, count(*) over () as rails
        from payment_rails r
        where not r.paused
          and (v_rooms is null or (v_rooms ->> r.rail_type)::int > 0)
      ) r
      cross join lateral (
        select case when v_floored then claim_floor(r.rail_type) else '-infinity' end
        offset 0
      ) f (floor)
      -- Of a rail that is alone, has no cap and no order the rows themselves are asked for; of others whether there are any.
      where r.rails = 1 and not r.ordered and r.max_in_flight is null
         or (
           select true
           from payment_outbox_pending p
           where p.rail_type = r.rail_type
             and not p.parked
             and p.next_attempt_at between f.floor and now()
             and (p.lease_expires_at is null or p.lease_expires_at <= now())
           order by p.next_attempt_at, p.created_at
           limit 1)
      order by r.rail_type
    loop
      v_room := least(v_wanted, (v_rooms ->> v_rail.rail_type)::int);
      if v_rail.max_in_flight is not null then
        -- Rows of capped rails are locked by name, in the first round and in one that waits; other rounds take no new lock.
        continue when v_round <> v_locking and v_rail.rail_type <> all (v_capped);
        v_seats := free_rail_seats(v_rail.rail_type, false);
        if v_seats is null and v_waits then
          v_seats := free_rail_seats(v_rail.rail_type, true);
          v_waits := false;
        end if;
        v_busy := v_busy or v_seats is null;
        v_room := least(v_room, coalesce(v_seats, 0));
        continue when v_room <= 0;
        v_capped := v_capped || v_rail.rail_type;
      end if;
      v_rails := v_rails || v_rail.rail_type;
      v_ordered := v_ordered || v_rail.ordered;
      v_floors := v_floors || v_rail.floor;
      v_quotas := v_quotas || v_room;
    end loop;

    -- Only now, with every rail's row that it needs, may the claim hold rows.
    for i in 1 .. cardinality(v_rails) loop
      v_reaches[i] := v_window;
      continue when not v_ordered[i];
      -- A few rows at first; more only while most of them turn out to wait.
      v_parked := park_waiting_outboxes(v_rails[i], 64, v_floors[i]);
      if v_parked = 0 then
        -- What waits could not be parked, if anything does: its head is being completed at this moment. Then it must be
        -- looked past, so that others are not held up.
        v_reaches[i] := 100 * v_window;
      elsif v_parked >= 32 then
        v_parked := park_waiting_outboxes(v_rails[i], v_window, v_floors[i]);
        if v_parked = v_window then
          -- There may be work behind what we had no time to park: ask for another claim at once.
          perform pg_notify('outbox_pending', 'new_work');
        end if;
      end if;
    end loop;

    if cardinality(v_rails) > 1 then
      -- How many of the first rows of all rails together are of each rail.
      select array_agg(c.quota order by c.place)
      into v_quotas
      from (
        select r.place, count(d.rail_type)::int as quota
        from unnest(v_rails) with ordinality as r (rail_type, place)
        left join (
          select r.rail_type
          from unnest(v_rails, v_ordered, v_floors, v_quotas) as r (rail_type, ordered, floor, room)
          cross join lateral (
            select f.next_attempt_at, f.created_at
            from (
              select p.participant_id, p.sequence_id, p.next_attempt_at, p.created_at
              from payment_outbox_pending p
              where p.rail_type = r.rail_type
                and not p.parked
                and p.next_attempt_at between r.floor and now()
                and (p.lease_expires_at is null or p.lease_expires_at <= now())
              order by p.next_attempt_at, p.created_at
              limit v_window
            ) f
            where not r.ordered
               or (
                 select true
                 from payment_outbox_pending e
                 where e.participant_id = f.participant_id
                   and e.rail_type = r.rail_type
                   and e.sequence_id < f.sequence_id
                 limit 1) is null
            limit r.room
          ) d
          order by d.next_attempt_at, d.created_at
          limit v_wanted
        ) d on d.rail_type = r.rail_type
        group by r.place
      ) c;
    end if;

    for i in 1 .. cardinality(v_rails) loop
      continue when v_quotas[i] = 0;
      v_walked := pg_stat_get_xact_tuples_returned(v_index);
      if v_ordered[i] then
        select array_agg(d.place), array_agg(d.place) filter (where d.lease_token is not null),
               array_agg(d.outbox_id) filter (where d.lease_token is not null), sum(d.bytes)
        into v_found, v_expired, v_zombies, v_bytes
        from (
          select p.ctid as place, p.outbox_id, p.lease_token,
                 case when pg_column_compression(p.payload) is null then pg_column_size(p.payload) else 262144 end as bytes
          from (
            select p.ctid as place, p.next_attempt_at, p.created_at
            from payment_outbox_pending p
            where p.rail_type = v_rails[i]
              and not p.parked
              and p.next_attempt_at between v_floors[i] and now()
              and (p.lease_expires_at is null or p.lease_expires_at <= now())
            order by p.next_attempt_at, p.created_at
            limit v_reaches[i]
          ) f
          join payment_outbox_pending p on p.ctid = f.place
          where (p.lease_expires_at is null or p.lease_expires_at <= now())
            and (
              select true
              from payment_outbox_pending e
              where e.participant_id = p.participant_id
                and e.rail_type = p.rail_type
                and e.sequence_id < p.sequence_id
              limit 1) is null
          order by f.next_attempt_at, f.created_at
          limit v_quotas[i]
          for update of p skip locked
        ) d;
      else
        select array_agg(d.place), array_agg(d.place) filter (where d.lease_token is not null),
               array_agg(d.outbox_id) filter (where d.lease_token is not null), sum(d.bytes)
        into v_found, v_expired, v_zombies, v_bytes
        from (
          select p.ctid as place, p.outbox_id, p.lease_token,
                 case when pg_column_compression(p.payload) is null then pg_column_size(p.payload) else 262144 end as bytes
          from payment_outbox_pending p
          where p.rail_type = v_rails[i]
            and not p.parked
            and p.next_attempt_at between v_floors[i] and now()
            and (p.lease_expires_at is null or p.lease_expires_at <= now())
          order by p.next_attempt_at, p.created_at
          limit v_quotas[i]
          for no key update skip locked
        ) d;
      end if;
      v_walked := pg_stat_get_xact_tuples_returned(v_index) - v_walked;
      if v_floors[i] = '-infinity' and v_walked > 5000 + 10 * coalesce(cardinality(v_found), 0) then
        perform remember_claim_floor(v_rails[i], v_walked);
      end if;

      if v_zombies is not null then
        perform end_expired_leases(v_expired, p_worker_id, null);
        v_ended := true;
        v_found := array(
          select p.ctid
          from payment_outbox_pending p
          where p.ctid = any (v_found)
            and p.lease_token is null
          union all
          select p.ctid
          from payment_outbox_pending p
          where p.outbox_id = any (v_zombies)
            and p.lease_token is null);
      end if;
      if v_bytes > v_budget then
        select f.places, f.bytes
        into v_found, v_bytes
        from fit_claim(v_found, v_budget, cardinality(v_places) + v_taken = 0) f;
      end if;
      v_budget := v_budget - coalesce(v_bytes, 0);
      v_places := v_places || v_found;
      if v_rooms is not null then
        v_rooms := v_rooms || jsonb_build_object(v_rails[i], (v_rooms ->> v_rails[i])::int - coalesce(cardinality(v_found), 0));
      end if;
    end loop;
    continue when cardinality(v_places) = 0 and v_ended;
    if cardinality(v_places) = 0 then
      -- Another claim that is deciding about a capped rail is done in a moment, as a rule, and may leave something. This one would go idle
      -- otherwise, so it waits once, for one such rail, for no more than 400 ms.
      exit when v_taken > 0 or not v_busy or v_locking > 1;
      v_locking := v_round + 1;
      v_waits := true;
      continue;
    end if;

    return query
      with leased as (
        update payment_outbox_pending p
        set claimed_by = p_worker_id,
            claimed_at = now(),
            lease_token = gen_random_uuid(),
            lease_expires_at = now() + make_interval(secs => p_lease_seconds)
        where p.ctid = any (v_places)
        returning p.outbox_id, p.instruction_id, p.participant_id, p.sequence_id, p.idempotency_key, p.rail_type, p.payload,
                  p.attempt_count, p.lease_token, p.lease_expires_at, p.next_attempt_at, p.created_at
      ),
      seated as (
        insert into payment_rail_seats (rail_type, lease_token, outbox_id)
        select l.rail_type, l.lease_token, l.outbox_id
        from leased l
        where l.rail_type = any (v_capped)
      )
      select l.outbox_id, l.instruction_id::text, l.participant_id::text, l.sequence_id::bigint, l.idempotency_key::text, l.rail_type::text,
             l.payload::jsonb, l.attempt_count::int, l.lease_token, l.lease_expires_at, coalesce(a.error_code in (select u.error_code from unknown_outcome_codes u), false)
      from leased l
      left join lateral (
        select a.error_code, a.state
        from payment_outbox_attempts a
        where a.outbox_id = l.outbox_id
        order by a.attempt_no desc
        limit 1
      ) a on true
      -- The function is called for what the ledger says has ended, and answers that such a row is not pending any more.
      where coalesce(a.state not in ('DISPATCHED', 'FAILED'), true)
         or quarantine_outbox(l.outbox_id)
      order by l.next_attempt_at, l.created_at;
    get diagnostics v_granted = row_count;
    v_taken := v_taken + v_granted;
    v_ended := v_ended or v_granted < cardinality(v_places);
    if v_budget < 0 then
      -- There is work that did not fit: ask for another claim at once.
      perform pg_notify('outbox_pending', 'new_work');
      exit;
    end if;
    exit when v_taken >= p_batch_size;
    continue when v_ended;
    exit when cardinality(v_rails) = 1
           or v_granted >= (select sum(q.quota) from unnest(v_quotas) as q (quota));
  end loop;
end
$$;

comment on function symphony.claim_outbox_batch(int, text, int) is
  'Leases a batch of due instructions to one worker, in the order of next_attempt_at and created_at.';
