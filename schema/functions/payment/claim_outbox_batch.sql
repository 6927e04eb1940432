-- Leases a batch of due instructions to one worker.
--
-- Two workers must never hold the same row: the row lock prevents that. A dead worker must not hold a row for ever:
-- its lease expires. Before the claim grants an expired lease to another worker, end_expired_leases records its end in
-- the ledger. The setting symphony.repaired_leases lists the ended leases until the transaction ends.
--
-- The claim reads the queue rail by rail, so a paused rail or a rail at its in-flight limit costs nothing, however
-- many rows it has. The merged order of all rails, by next_attempt_at and created_at, decides how many rows each rail
-- contributes. On an ordered rail (FIFO) the claim takes the head of each participant's stream only. Sequence order is
-- commit order, so a claim that sees a row also sees every earlier row of the stream. With on_failure HOLD it takes no row
-- behind a failure that holds the stream; see hold_payment_streams. The planner's choices are pinned,
-- because a session keeps its plans and the table may have been empty when they were made. Where a stream is read,
-- rail_type || '' keeps them from the index of the claim order.
--
-- On a rail with max_in_flight or max_per_second all claims share the capacity: see rail_claim_capacity. A rail with
-- max_per_second that has due rows is a reason to look up when the next row can be claimed: the setting
-- symphony.claim_used_rate_limit is then true until the transaction ends.
--
-- The usual case has three small statements of its own: a single rail has due rows, it has neither order nor limit, and
-- all rows are first attempts. They lock the rows, check that, and lease them. If a row is not a first attempt, they lease
-- nothing, and the general case follows.
--
-- The payloads of one claim add up to at most claim_byte_limit(), uncompressed. A row whose outbox already has a
-- terminal ledger row is quarantined instead of claimed. p_limits bounds the rows per rail; see check_claim_limits.
--
-- A row of an earlier epoch may have been sent in a history that this database has lost. Its outcome is unknown until
-- the ledger has an attempt that was leased in the current epoch. The first claim on another server opens the epoch; see
-- ensure_epoch. Held rails are left out like paused ones.
--
-- With p_followers, such as {"sepa": 30}, the claim may also lease rows behind the heads of an ordered rail, at most that
-- many per rail: see lock_run_followers. They count in the batch and in every limit, and one row of the batch at least is a head;
-- heads take the places that followers leave. The worker must dispatch the rows of a participant on such a rail one
-- after the other. It releases the rest as soon as one does not end as DISPATCHED, or when it loses a lease of the run.
-- The setting symphony.claimed_runs has the rails on which the claim leased followers, as a JSON array, until the
-- transaction ends. Without p_followers it leases heads only.
--
-- p_endpoints, such as {"sepa": "bank.example#6f0c…"}, says where the worker sends to on each rail. It belongs to the lease,
-- so that the ledger knows it however the lease ends: see advise_on_unknown_outcome.
--
-- Of the rails in p_first_attempts the claim takes only rows that have not been attempted, the newest first: a worker whose
-- circuit breaker is half-open probes such a rail with them. See lock_first_attempts.
-- Locks: when the server has changed, those of advance_epoch; the rows it returns; the row of each rail with a limit,
-- unless another claim holds it;
-- payment_rails in ROW SHARE mode. It never waits for a producer, waits at most 400 ms for another claim, and at most
-- 5 s for any lock.
-- Raises: P7005, 25000 outside READ COMMITTED, 55P03 after 5 s behind a lock. For: symphony_executor.
create or replace function symphony.claim_outbox_batch(
  p_batch_size     int,
  p_worker_id      text,
  p_lease_seconds  int,
  p_limits         jsonb default null,
  p_followers      jsonb default null,
  p_endpoints      jsonb default null,
  p_first_attempts text[] default null)
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
  v_window         constant int := 1000;
  v_index          constant oid := 'payment_outbox_pending_claim_order'::regclass;
  v_stream_index   constant oid := 'payment_outbox_pending_sequence_is_unique'::regclass;
  -- Most sessions have saved no low watermark: then no rail is looked up.
  v_has_watermarks constant boolean := current_setting('symphony.claim_low_watermarks', true) <> '';
  v_rail           record;
  v_capacity       int;
  -- p_limits, less what this claim has found so far.
  v_limits         jsonb := p_limits;
  v_scanned        bigint;
  -- Ordered rails: how many rows the claim examines at most, how many it did, whether it may still park rows, and how
  -- many it parked.
  v_scan_limit     int := v_window + p_batch_size;
  v_examined       bigint;
  -- Ordered rails: how many entries of the stream index were read to find the heads.
  v_stream_scanned bigint;
  v_may_park       boolean := true;
  v_parked         int;
  -- The rails that have due rows and capacity, as parallel arrays.
  v_rails          text[];
  v_ordered        boolean[];
  v_holds          boolean[];
  v_low_watermarks timestamptz[];
  v_capacities     int[];
  v_quotas         int[];
  -- Rails with a limit: those whose row this claim has locked, those of them with max_in_flight and with max_per_second, the free
  -- capacity of the current one (null if another claim holds its row), whether there was such a rail, the round that may lock rails,
  -- and whether it may wait for one.
  v_locked         text[] := '{}';
  v_limited        text[] := '{}';
  v_rated          text[] := '{}';
  v_free           int;
  v_limit_locked   boolean := false;
  v_locking_round  int := 1;
  v_may_wait       boolean := false;
  -- The rows locked for the current rail, and for all rails of this round.
  v_found          tid[];
  v_row_ids        tid[];
  -- How many more followers the claim may lease per rail; the rows of the current rail, and the rails that have some.
  v_max_followers  jsonb := p_followers;
  v_head_limit     int;
  v_head_count     int;
  v_followers      record;
  v_run_rails      text[] := '{}';
  -- Those of the current rail whose lease has expired.
  v_expired_rows   tid[];
  v_expired_ids    uuid[];
  -- Whether leases or outboxes ended, so that another round may find more.
  v_repeat         boolean;
  v_claimed        int := 0;
  v_wanted         int;
  v_granted        int;
  -- The usual case: how many rails may have due rows, the first of them, its low watermark and its endpoint, whether this is
  -- the usual case, and the outboxes found with the first and the last of their ids.
  v_open_rails     int;
  v_usual_rail     text;
  v_low_watermark  timestamptz;
  -- Whether this server is the one of the newest epoch, and the current epoch.
  v_is_same_server boolean;
  v_epoch          bigint;
  v_endpoint       text;
  -- The latest next_attempt_at of the rows found on a rail without order.
  v_last_due       timestamptz;
  v_is_usual       boolean;
  v_found_ids      uuid[];
  v_first_id       uuid;
  v_last_id        uuid;
  -- An upper bound of the payload bytes found, and how many more the claim may return; negative once a row did not fit.
  v_bytes          bigint;
  v_budget         bigint;
begin
  -- One expression, because five calls take as long as the lease of a row. The functions have the rules and raise the errors.
  if (p_batch_size between 1 and 1000 and p_worker_id ~ '[^[:space:]]' and char_length(p_worker_id) <= 200
      and p_lease_seconds between 1 and 3600
      and (p_limits is null or jsonb_typeof(p_limits) = 'object'
           and not jsonb_path_exists(p_limits, '$.* ? (@.type() != "number" || @ < 0 || @ > 1000000 || @.floor() != @)'))
      and (p_followers is null or jsonb_typeof(p_followers) = 'object'
           and not jsonb_path_exists(p_followers, '$.* ? (@.type() != "number" || @ < 0 || @ > 1000000 || @.floor() != @)'))
      and current_setting('transaction_isolation') = 'read committed' and current_setting('synchronous_commit') <> 'off') is not true then
    perform check_range('p_batch_size', p_batch_size, 1, 1000);
    perform check_argument('p_worker_id', p_worker_id, 200);
    perform check_range('p_lease_seconds', p_lease_seconds, 1, 3600);
    if p_limits is not null then
      perform check_claim_limits(p_limits);
    end if;
    if p_followers is not null then
      perform check_claim_limits(p_followers, 'p_followers');
    end if;
    perform check_isolation();
    perform require_synchronous_commit();
  end if;
  -- A value is never longer than the whole, and one that begins with a visible character is not blank. What is left is for the function.
  if p_endpoints is not null
     and (jsonb_typeof(p_endpoints) = 'object' and pg_column_size(p_endpoints) <= 200
          and not jsonb_path_exists(p_endpoints, '$.* ? (@.type() != "string" || @ < "!")')) is not true then
    perform check_claim_endpoints(p_endpoints);
  end if;
  -- Clear the lists of an earlier call in this transaction.
  if current_setting('symphony.repaired_leases', true) <> '' then
    perform set_config('symphony.repaired_leases', '', true);
  end if;
  if current_setting('symphony.claimed_runs', true) <> '' then
    perform set_config('symphony.claimed_runs', '', true);
  end if;
  -- Before the lock: a claim that opens an epoch needs a stronger one, and two that held this one would wait for each other.
  -- The first statement of ensure_epoch, because the call takes five times as long.
  select e.timeline = ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int
         and e.system_identifier = (select s.system_identifier from epoch_server s where s.started_at = pg_postmaster_start_time())
         and coalesce(current_setting('symphony.opened_epoch', true), '') = ''
         and set_config('symphony.epoch', e.counter::text, true) is not null
  into v_is_same_server
  from (select e.counter, e.timeline, e.system_identifier from epoch e order by e.counter desc limit 1) e;
  if v_is_same_server is not true then
    perform ensure_epoch(p_worker_id);
  end if;
  -- Keeps rail policies and the epoch constant during the claim; see lock_rail_policies.
  lock table payment_rails in row share mode;

  -- The usual case.
  select count(*), min(r.rail_type), bool_and(not r.ordered and r.max_in_flight is null and r.max_per_second is null), max(r.epoch)
  into v_open_rails, v_usual_rail, v_is_usual, v_epoch
  from payment_rails r
  where not r.paused
    and r.held_since_epoch is null
    and (p_limits is null or (p_limits ->> r.rail_type)::int > 0);
  if v_open_rails > 1 then
    select count(*), min(r.rail_type), bool_and(not r.ordered and r.max_in_flight is null and r.max_per_second is null)
    into v_open_rails, v_usual_rail, v_is_usual
    from rails_with_due_rows(p_limits, v_has_watermarks) r;
  end if;
  if v_open_rails = 0 then
    return;
  elsif v_open_rails = 1 and v_is_usual and p_first_attempts is null then
    v_low_watermark := case when v_has_watermarks then claim_low_watermark(v_usual_rail) else '-infinity' end;
    v_capacity := least(p_batch_size, (p_limits ->> v_usual_rail)::int);
    v_scanned := pg_stat_get_xact_tuples_returned(v_index);
    select array_agg(d.row_id), array_agg(d.outbox_id), max(d.next_attempt_at),
           bool_and(d.lease_token is null and d.attempt_count = 0 and d.epoch = v_epoch) and sum(d.bytes) <= claim_byte_limit()
    into v_found, v_found_ids, v_last_due, v_is_usual
    from (
      select p.ctid as row_id, p.outbox_id, p.next_attempt_at, p.lease_token, p.attempt_count, p.epoch,
             case when pg_column_compression(p.payload) is null then pg_column_size(p.payload) else 262144 end as bytes
      from payment_outbox_pending p
      where p.rail_type = v_usual_rail
        and not p.parked
        and p.next_attempt_at between v_low_watermark and now()
        and (p.lease_expires_at is null or p.lease_expires_at <= now())
      order by p.next_attempt_at, p.created_at
      limit v_capacity
      for no key update skip locked
    ) d;
    v_scanned := pg_stat_get_xact_tuples_returned(v_index) - v_scanned;
    if v_low_watermark = '-infinity' and v_scanned > 200 + 3 * coalesce(cardinality(v_found), 0) then
      perform save_claim_low_watermark(v_usual_rail, v_scanned, coalesce(cardinality(v_found), 0), v_last_due);
    end if;
    if v_found is null then
      return;
    end if;
    if v_is_usual then
      -- A row whose outbox has ended is quarantined below. The range lets PostgreSQL open only the partitions that have these outboxes.
      -- Not sorted by the aggregate above: from PostgreSQL 16 on that would sort the rows of all aggregates.
      if cardinality(v_found_ids) > 1 then
        v_found_ids := array(select f.outbox_id from unnest(v_found_ids) as f (outbox_id) order by f.outbox_id);
      end if;
      v_first_id := v_found_ids[1];
      v_last_id := v_found_ids[cardinality(v_found_ids)];
      v_is_usual := not exists (
        select
        from payment_outbox_attempts a
        where a.outbox_id between v_first_id and v_last_id
          and a.outbox_id = any (v_found_ids));
    end if;
    if v_is_usual then
      v_endpoint := p_endpoints ->> v_usual_rail;
      -- The join returns the rows in the order of the array, which is the claim order.
      return query
        update payment_outbox_pending p
        set claimed_by = p_worker_id,
            claimed_at = now(),
            lease_token = gen_random_uuid(),
            lease_expires_at = now() + make_interval(secs => p_lease_seconds),
            claimed_epoch = v_epoch,
            claimed_endpoint = v_endpoint
        from unnest(v_found) as f (row_id)
        where p.ctid = f.row_id
        returning p.outbox_id, p.instruction_id::text, p.participant_id::text, p.sequence_id::bigint, p.idempotency_key::text,
                  p.rail_type::text, p.payload::jsonb, p.attempt_count::int, p.lease_token, p.lease_expires_at, false;
      return;
    end if;
  end if;

  v_budget := claim_byte_limit();
  -- One round is enough unless another claim takes rows that the quotas counted, or rows found have ended.
  for v_round in 1 .. 20 loop
    v_rails := '{}';
    v_ordered := '{}';
    v_holds := '{}';
    v_low_watermarks := '{}';
    v_capacities := '{}';
    v_row_ids := '{}';
    v_repeat := false;
    v_wanted := p_batch_size - v_claimed;

    for v_rail in
      select r.rail_type, r.ordered, r.holds, r.max_in_flight, r.max_per_second, r.low_watermark
      from rails_with_due_rows(v_limits, v_has_watermarks) r
    loop
      v_capacity := least(v_wanted, (v_limits ->> v_rail.rail_type)::int);
      if num_nonnulls(v_rail.max_in_flight, v_rail.max_per_second) > 0 then
        -- Rail rows are locked in the order of their names, in the first round and in one that waits; other rounds lock none.
        continue when v_round <> v_locking_round and v_rail.rail_type <> all (v_locked);
        v_free := rail_claim_capacity(v_rail.rail_type, false);
        if v_free is null and v_may_wait then
          v_free := rail_claim_capacity(v_rail.rail_type, true);
          v_may_wait := false;
        end if;
        v_limit_locked := v_limit_locked or v_free is null;
        if v_rail.max_per_second is not null and v_rail.rail_type <> all (v_rated) then
          v_rated := v_rated || v_rail.rail_type;
        end if;
        v_capacity := least(v_capacity, coalesce(v_free, 0));
        continue when v_capacity <= 0;
        v_locked := v_locked || v_rail.rail_type;
        if v_rail.max_in_flight is not null then
          v_limited := v_limited || v_rail.rail_type;
        end if;
      end if;
      v_rails := v_rails || v_rail.rail_type;
      v_ordered := v_ordered || v_rail.ordered;
      v_holds := v_holds || v_rail.holds;
      v_low_watermarks := v_low_watermarks || v_rail.low_watermark;
      v_capacities := v_capacities || v_capacity;
    end loop;
    v_quotas := v_capacities;

    if cardinality(v_rails) > 1 then
      -- Each rail's share of the first rows in the merged order of all rails.
      select array_agg(c.quota order by c.place)
      into v_quotas
      from (
        select r.place, count(d.rail_type)::int as quota
        from unnest(v_rails) with ordinality as r (rail_type, place)
        left join (
          select r.rail_type
          from unnest(v_rails, v_ordered, v_holds, v_low_watermarks, v_capacities) as r (rail_type, ordered, holds, low_watermark, capacity)
          cross join lateral (
            select f.next_attempt_at, f.created_at
            from (
              select p.participant_id, p.sequence_id, p.next_attempt_at, p.created_at
              from payment_outbox_pending p
              where p.rail_type = r.rail_type
                and not p.parked
                and p.next_attempt_at between r.low_watermark and now()
                and (p.lease_expires_at is null or p.lease_expires_at <= now())
              order by p.next_attempt_at, p.created_at
              limit v_scan_limit
            ) f
            where not r.ordered
               or (
                 select true
                 from payment_outbox_pending e
                 where e.participant_id = f.participant_id
                   and e.sequence_id >= coalesce((
                     select m.sequence_id
                     from payment_stream_low_marks m
                     where m.participant_id = f.participant_id
                       and m.rail_type = r.rail_type), 1)
                   and e.sequence_id < f.sequence_id
                   and e.rail_type || '' = r.rail_type
                 limit 1) is null
                 and (not r.holds
                      or (
                        select true
                        from payment_stream_holds h
                        where h.participant_id = f.participant_id
                          and h.rail_type = r.rail_type
                          and h.sequence_id < f.sequence_id
                        limit 1) is null)
            limit r.capacity
          ) d
          order by d.next_attempt_at, d.created_at
          limit v_wanted
        ) d on d.rail_type = r.rail_type
        group by r.place
      ) c;
    end if;

    -- Rows may be locked only now, after every rail row that the claim needs: this order prevents deadlocks.
    for i in 1 .. cardinality(v_rails) loop
      if v_quotas[i] = 0 and v_ordered[i] and v_may_park then
        -- If the batch has space left, every row that was counted is behind a head: examine them again, to park them.
        v_quotas[i] := least(v_capacities[i], v_wanted - (select sum(q.quota) from unnest(v_quotas) as q (quota)));
      end if;
      continue when v_quotas[i] = 0;
      v_scanned := pg_stat_get_xact_tuples_returned(v_index);
      v_last_due := null;
      if v_rails[i] = any (p_first_attempts) then
        select f.row_ids, f.bytes
        into v_found, v_bytes
        from lock_first_attempts(v_rails[i], v_ordered[i], v_quotas[i]) f;
        v_expired_rows := null;
        v_expired_ids := null;
        v_scanned := pg_stat_get_xact_tuples_returned(v_index);
      elsif v_ordered[i] then
        v_examined := pg_stat_get_xact_numscans(v_stream_index);
        v_stream_scanned := pg_stat_get_xact_tuples_returned(v_stream_index);
        v_head_limit := greatest(v_quotas[i] - coalesce((v_max_followers ->> v_rails[i])::int, 0), 1);
        select array_agg(d.row_id), array_agg(d.row_id) filter (where d.lease_token is not null),
               array_agg(d.outbox_id) filter (where d.lease_token is not null), sum(d.bytes)
        into v_found, v_expired_rows, v_expired_ids, v_bytes
        from (
          select p.ctid as row_id, p.outbox_id, p.lease_token,
                 case when pg_column_compression(p.payload) is null then pg_column_size(p.payload) else 262144 end as bytes
          from (
            select p.ctid as row_id, p.next_attempt_at, p.created_at
            from payment_outbox_pending p
            where p.rail_type = v_rails[i]
              and not p.parked
              and p.next_attempt_at between v_low_watermarks[i] and now()
              and (p.lease_expires_at is null or p.lease_expires_at <= now())
            order by p.next_attempt_at, p.created_at
            limit v_scan_limit
          ) f
          join payment_outbox_pending p on p.ctid = f.row_id
          where (p.lease_expires_at is null or p.lease_expires_at <= now())
            -- FIFO: only a row without an earlier pending row of its participant on this rail, nor an earlier failure that holds the
            -- stream. A CASE, so that the first look-up, which v_examined counts, is made for each row.
            and case
              when (
                select true
                from payment_outbox_pending e
                where e.participant_id = p.participant_id
                  and e.sequence_id >= coalesce((
                    select m.sequence_id
                    from payment_stream_low_marks m
                    where m.participant_id = p.participant_id
                      and m.rail_type = p.rail_type), 1)
                  and e.sequence_id < p.sequence_id
                  and e.rail_type || '' = p.rail_type
                limit 1) then false
              when v_holds[i] then (
                select true
                from payment_stream_holds h
                where h.participant_id = p.participant_id
                  and h.rail_type = p.rail_type
                  and h.sequence_id < p.sequence_id
                limit 1) is null
              else true
            end
          order by f.next_attempt_at, f.created_at
          limit v_head_limit
          for update of p skip locked
        ) d;
        -- The stream index was searched once for each row that was examined.
        v_examined := pg_stat_get_xact_numscans(v_stream_index) - v_examined;
        v_head_count := coalesce(cardinality(v_found), 0);
        v_stream_scanned := pg_stat_get_xact_tuples_returned(v_stream_index) - v_stream_scanned;
        if v_head_count > 0 and v_stream_scanned > 200 + 10 * v_examined then
          perform save_stream_low_marks(v_found);
        end if;
        if v_head_count > 0 and v_max_followers ? v_rails[i] and v_expired_rows is null then
          -- Followers use what the heads of all rails leave.
          v_followers := lock_run_followers(v_rails[i], v_found, least(
            (v_max_followers ->> v_rails[i])::int,
            v_capacities[i] - v_head_count,
            v_wanted - cardinality(v_row_ids) - v_head_count
              - coalesce((select sum(q.quota) from unnest(v_quotas[i + 1 :]) as q (quota)), 0)::int));
          v_found := v_found || v_followers.row_ids;
          v_bytes := v_bytes + v_followers.bytes;
          if cardinality(v_followers.row_ids) > 0 then
            v_run_rails := v_run_rails || v_rails[i];
          end if;
          -- There may be heads for the places that followers left: another round takes heads alone.
          v_repeat := v_repeat or v_head_count = v_head_limit and cardinality(v_found) < v_quotas[i];
          v_max_followers := v_max_followers - v_rails[i];
        end if;
        if v_may_park and v_examined > v_head_count and v_head_count < v_head_limit and coalesce(cardinality(v_found), 0) < v_quotas[i] then
          -- Some rows were behind a head, and the claim could use more. It reads a few of them at first, to park them.
          v_may_park := false;
          v_parked := park_behind_head(v_rails[i], 64, v_low_watermarks[i], v_found);
          if v_parked >= 32 then
            v_parked := park_behind_head(v_rails[i], v_window, v_low_watermarks[i], v_found);
          end if;
          if v_examined >= v_scan_limit then
            -- There may be due rows behind those that were examined. If heads that are being completed right now kept rows
            -- from being parked, read past them, so that they do not block other participants.
            v_repeat := v_repeat or coalesce(v_parked, 1) > 0;
            if v_parked is null then
              v_scan_limit := 100 * v_window;
            elsif v_parked = v_window then
              -- Let another claim park the rest.
              perform pg_notify('outbox_pending', 'new_work');
            end if;
          end if;
        end if;
      else
        select array_agg(d.row_id), array_agg(d.row_id) filter (where d.lease_token is not null),
               array_agg(d.outbox_id) filter (where d.lease_token is not null), sum(d.bytes), max(d.next_attempt_at)
        into v_found, v_expired_rows, v_expired_ids, v_bytes, v_last_due
        from (
          select p.ctid as row_id, p.outbox_id, p.next_attempt_at, p.lease_token,
                 case when pg_column_compression(p.payload) is null then pg_column_size(p.payload) else 262144 end as bytes
          from payment_outbox_pending p
          where p.rail_type = v_rails[i]
            and not p.parked
            and p.next_attempt_at between v_low_watermarks[i] and now()
            and (p.lease_expires_at is null or p.lease_expires_at <= now())
          order by p.next_attempt_at, p.created_at
          limit v_quotas[i]
          for no key update skip locked
        ) d;
      end if;
      v_scanned := pg_stat_get_xact_tuples_returned(v_index) - v_scanned;
      if v_low_watermarks[i] = '-infinity' and v_scanned > 200 + 3 * coalesce(cardinality(v_found), 0) then
        perform save_claim_low_watermark(v_rails[i], v_scanned, coalesce(cardinality(v_found), 0), v_last_due);
      end if;

      if v_expired_ids is not null then
        perform end_expired_leases(v_expired_rows, p_worker_id, null);
        v_repeat := true;
        v_found := array(
          select p.ctid
          from payment_outbox_pending p
          where p.ctid = any (v_found)
            and p.lease_token is null
          union all
          select p.ctid
          from payment_outbox_pending p
          where p.outbox_id = any (v_expired_ids)
            and p.lease_token is null);
      end if;
      if v_bytes > v_budget then
        select f.row_ids, f.bytes
        into v_found, v_bytes
        from trim_claim_to_byte_limit(v_found, v_budget, cardinality(v_row_ids) + v_claimed = 0) f;
      end if;
      if v_rails[i] = any (v_rated) and cardinality(v_found) > 0 then
        update payment_rail_tokens t
        set micro_tokens = t.micro_tokens - cardinality(v_found) * 1000000::bigint
        where t.rail_type = v_rails[i];
      end if;
      v_budget := v_budget - coalesce(v_bytes, 0);
      v_row_ids := v_row_ids || v_found;
      if v_limits is not null then
        v_limits := v_limits || jsonb_build_object(v_rails[i], (v_limits ->> v_rails[i])::int - coalesce(cardinality(v_found), 0));
      end if;
    end loop;
    continue when cardinality(v_row_ids) = 0 and v_repeat;
    if cardinality(v_row_ids) = 0 then
      -- The claim that holds the row of a limited rail usually commits soon and may leave capacity. Instead of returning
      -- nothing, this claim waits once, for one such rail, at most 400 ms.
      exit when v_claimed > 0 or not v_limit_locked or v_locking_round > 1;
      v_locking_round := v_round + 1;
      v_may_wait := true;
      continue;
    end if;

    return query
      with leased as (
        update payment_outbox_pending p
        set claimed_by = p_worker_id,
            claimed_at = now(),
            lease_token = gen_random_uuid(),
            lease_expires_at = now() + make_interval(secs => p_lease_seconds),
            claimed_epoch = v_epoch,
            claimed_endpoint = p_endpoints ->> p.rail_type,
            parked = false
        where p.ctid = any (v_row_ids)
        returning p.outbox_id, p.instruction_id, p.participant_id, p.sequence_id, p.idempotency_key, p.rail_type, p.payload,
                  p.attempt_count, p.lease_token, p.lease_expires_at, p.next_attempt_at, p.created_at, p.epoch
      ),
      in_flight as (
        insert into payment_rail_in_flight (rail_type, lease_token, outbox_id)
        select l.rail_type, l.lease_token, l.outbox_id
        from leased l
        where l.rail_type = any (v_limited)
      )
      select l.outbox_id, l.instruction_id::text, l.participant_id::text, l.sequence_id::bigint, l.idempotency_key::text, l.rail_type::text,
             l.payload::jsonb, l.attempt_count::int, l.lease_token, l.lease_expires_at,
             coalesce(a.error_code in (select u.error_code from unknown_outcome_codes u), false)
             or (l.epoch <> v_epoch and a.epoch is distinct from v_epoch)
      from leased l
      left join lateral (
        select a.error_code, a.state, a.epoch
        from payment_outbox_attempts a
        where a.outbox_id = l.outbox_id
        order by a.attempt_no desc
        limit 1
      ) a on true
      -- quarantine_outbox runs for outboxes with a terminal ledger row, and returns false for them.
      where coalesce(a.state not in ('DISPATCHED', 'FAILED'), true)
         or quarantine_outbox(l.outbox_id)
      order by l.next_attempt_at, l.created_at;
    get diagnostics v_granted = row_count;
    v_claimed := v_claimed + v_granted;
    v_repeat := v_repeat or v_granted < cardinality(v_row_ids);
    if v_budget < 0 then
      -- Some rows did not fit: notify, so that another claim follows at once.
      perform pg_notify('outbox_pending', 'new_work');
      exit;
    end if;
    exit when v_claimed >= p_batch_size;
    continue when v_repeat;
    exit when cardinality(v_rails) = 1
           or v_granted >= (select sum(q.quota) from unnest(v_quotas) as q (quota));
  end loop;
  if cardinality(v_rated) > 0 then
    perform set_config('symphony.claim_used_rate_limit', 'true', true);
  end if;
  if cardinality(v_run_rails) > 0 then
    perform set_config('symphony.claimed_runs', to_jsonb(v_run_rails)::text, true);
  end if;
end
$$;

comment on function symphony.claim_outbox_batch(int, text, int, jsonb, jsonb, jsonb, text[]) is
  'Leases a batch of due instructions to one worker, in the order of next_attempt_at and created_at.';
