-- Searches outboxes for the console and the CLI, the newest first, one page at a time.
--
-- A null argument does not filter. Instruction and key are found by their indexes; failures by the order in which they
-- happened. Every other search reads from the newest backwards, at most a thousand outboxes; next_before says where the
-- next page starts. An empty page with next_before means that none of those thousand matched. p_from and p_to bound the
-- time of the enqueue.
-- A participant is found by an index in the partitions of the ledger that have one. Those that completions still write to
-- have none: there a page reads backwards, at most 20,000 outboxes of all participants.
-- Locks: nothing. Raises: P7005. For: symphony_operator, symphony_readonly, symphony_auditor.
create or replace function symphony.search_payment_outboxes(
  p_instruction_id  text,
  p_participant_id  text,
  p_idempotency_key text,
  p_rail_type       text,
  p_state           text,
  p_error_code      text,
  p_from            timestamptz,
  p_to              timestamptz,
  p_before          uuid,
  p_limit           int,
  out outboxes      jsonb,
  out examined      int,
  out next_before   uuid)
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
declare
  v_low   constant uuid := coalesce(uuidv7_lower_bound(p_from), '00000000-0000-0000-0000-000000000000');
  v_high  constant uuid := least(coalesce(p_before, 'ffffffff-ffff-ffff-ffff-ffffffffffff'),
                                 coalesce(uuidv7_lower_bound(p_to), 'ffffffff-ffff-ffff-ffff-ffffffffffff'));
  v_ended constant boolean := p_state in ('DISPATCHED', 'FAILED');
  -- Without a remaining filter every row that is read is shown; one more tells whether there is a next page.
  v_max_rows  constant int := case when num_nonnulls(p_rail_type, p_state, p_error_code, p_from, p_to) = 0 then p_limit + 1 else 1000 end;
  -- How many outboxes of other participants a page may still read, and where it stopped.
  v_unread      int := 20000;
  v_stopped_at  uuid;
  v_partition   record;
  v_read        uuid[];
  v_ids   uuid[];
  v_found uuid[];
begin
  perform check_range('p_limit', p_limit, 1, 200);

  -- Filter by name first and sort afterwards: in one query a plan might scan in sort order and filter by name.
  -- The registry has the newest outbox of a key; the outboxes that it was redriven from follow.
  if num_nonnulls(p_idempotency_key, p_instruction_id) > 0 then
    v_ids := array(
      with recursive named as (
        (select k.outbox_id
         from payment_outbox_keys k
         where p_idempotency_key is not null
           and k.idempotency_key = p_idempotency_key
           and k.instruction_id = coalesce(p_instruction_id, k.instruction_id)
         union all
         select k.outbox_id
         from payment_outbox_keys k
         where p_idempotency_key is null
           and k.instruction_id = p_instruction_id)
        union all
        select o.outbox_id
        from named n
        cross join lateral (
          select o.outbox_id
          from payment_outbox_operations o
          where o.new_outbox_id = n.outbox_id
          limit 1
        ) o
      )
      select n.outbox_id
      from named n
      where n.outbox_id < v_high
      order by n.outbox_id desc
      limit v_max_rows);
  elsif p_participant_id is not null then
    v_ids := '{}';
    for v_partition in
      select l.is_searchable,
             greatest(coalesce(l.from_id, v_low), v_low) as from_id,
             least(coalesce(l.to_id, v_high), v_high) as to_id
      from payment_ledger_partitions() l
      where coalesce(l.from_id < v_high, true)
        and coalesce(l.to_id > v_low, true)
      order by l.starts_at desc nulls last
    loop
      if v_partition.is_searchable then
        v_ids := v_ids || array(
          select a.outbox_id
          from payment_outbox_attempts a
          where a.participant_id = p_participant_id
            and a.state in ('DISPATCHED', 'FAILED')
            and a.outbox_id >= v_partition.from_id
            and a.outbox_id < v_partition.to_id
          order by a.outbox_id desc
          limit v_max_rows - cardinality(v_ids));
      else
        select array_agg(r.outbox_id order by r.outbox_id desc) filter (where r.participant_id = p_participant_id),
               v_unread - count(*),
               (array_agg(r.outbox_id order by r.outbox_id))[1]
        into v_read, v_unread, v_stopped_at
        from (
          select a.outbox_id, a.participant_id
          from payment_outbox_attempts a
          where a.state in ('DISPATCHED', 'FAILED')
            and a.outbox_id >= v_partition.from_id
            and a.outbox_id < v_partition.to_id
          order by a.outbox_id desc
          limit v_unread
        ) r;
        v_ids := v_ids || coalesce(v_read, '{}');
        exit when v_unread = 0;
        v_stopped_at := null;
      end if;
      exit when cardinality(v_ids) >= v_max_rows;
    end loop;
    v_ids := array(
      select s.outbox_id
      from (
        (select p.outbox_id
         from payment_outbox_pending p
         where p.participant_id = p_participant_id
         offset 0)
        union all
        select i.outbox_id from unnest(v_ids) as i (outbox_id)
      ) s
      where s.outbox_id < v_high
        and s.outbox_id >= coalesce(v_stopped_at, v_low)
      order by s.outbox_id desc
      limit v_max_rows);
  elsif p_state = 'FAILED' then
    v_ids := array(select w.outbox_id from recent_payment_failures(p_before, v_max_rows) w order by w.place);
  else
    v_ids := array(
      select s.outbox_id
      from (
        (select p.outbox_id
         from payment_outbox_pending p
         where v_ended is not true
           and p.outbox_id < v_high
           and p.outbox_id >= v_low
         order by p.outbox_id desc
         limit v_max_rows)
        union all
        (select a.outbox_id
         from payment_outbox_attempts a
         where v_ended is not false
           and a.state in ('DISPATCHED', 'FAILED')
           and a.outbox_id < v_high
           and a.outbox_id >= v_low
         order by a.outbox_id desc
         limit v_max_rows)
      ) s
      order by s.outbox_id desc
      limit v_max_rows);
  end if;
  examined := cardinality(v_ids);

  with matching as (
    select o.*, i.place
    from unnest(v_ids) with ordinality as i (outbox_id, place)
    cross join lateral (select v.* from payment_outboxes v where v.outbox_id = i.outbox_id limit 1) o
    where (p_instruction_id is null or o.instruction_id = p_instruction_id)
      and (p_participant_id is null or o.participant_id = p_participant_id)
      and (p_rail_type is null or o.rail_type = p_rail_type)
      and (p_state is null or o.state = p_state)
      and (p_error_code is null or o.error_code = p_error_code)
      and (p_from is null or o.outbox_id >= v_low)
      and (p_to is null or o.outbox_id < uuidv7_lower_bound(p_to))
    order by i.place
    limit p_limit + 1
  ),
  page as (
    select m.* from matching m order by m.place limit p_limit
  )
  select coalesce((select jsonb_agg(to_jsonb(g.*) - 'place' order by g.place) from page g), '[]'),
         array(select m.outbox_id from matching m order by m.place)
  into outboxes, v_found;

  if cardinality(v_found) > p_limit then
    next_before := v_found[p_limit];
  elsif examined = v_max_rows then
    next_before := v_ids[v_max_rows];
  else
    next_before := v_stopped_at;
  end if;
end
$$;

comment on function symphony.search_payment_outboxes(text, text, text, text, text, text, timestamptz, timestamptz, uuid, int) is
  'A page of matching outboxes, the newest first, as rows of payment_outboxes; how many were read; and where the next page starts.';
