-- Allocates sequence numbers for several participants and returns the first number of each, in the order given.
--
-- The set-based form of bump_participant_outbox_seq, with the same guarantees: gapless and in commit order. It inserts
-- the rows of new participants before it locks existing rows, and both in the order of their names. So a call that
-- holds an existing row never waits for a row that is still being inserted, and two calls cannot deadlock. As in the
-- single form, a row is searched from the newest end of the index.
-- Locks: the participants' rows, until the transaction ends. Raises: 40001. For: enqueue_payment_outbox_batch.
create or replace function symphony.allocate_outbox_sequences(p_participant_ids text[], p_counts int[])
  returns bigint[]
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
as $$
declare
  v_rows   tid[];
  v_firsts bigint[];
begin
  insert into participant_outbox_sequences (participant_id, next_sequence_id)
  select g.participant_id, 1
  from unnest(p_participant_ids) as g (participant_id)
  where (
    select true
    from participant_outbox_sequences s
    where s.participant_id between g.participant_id and g.participant_id
    order by s.participant_id desc
    limit 1) is null
  order by g.participant_id collate "C"
  on conflict (participant_id) do nothing;

  -- Lock in one statement, update in the next: only the next one sees the version that the lock has waited for.
  select array_agg(f.counter order by g.place)
  into v_rows
  from (
    select g.participant_id, g.place
    from unnest(p_participant_ids) with ordinality as g (participant_id, place)
    order by g.participant_id collate "C"
    offset 0
  ) g
  cross join lateral (
    select s.ctid as counter
    from participant_outbox_sequences s
    where s.participant_id between g.participant_id and g.participant_id
    order by s.participant_id desc
    limit 1
    for no key update
  ) f;

  with taken as (
    update participant_outbox_sequences s
    set next_sequence_id = s.next_sequence_id + g.count
    from unnest(v_rows, p_counts) with ordinality as g (counter, count, place)
    where s.ctid = g.counter
    returning g.place, s.next_sequence_id - g.count as first
  )
  select array_agg(t.first order by t.place)
  into v_firsts
  from taken t;
  if cardinality(v_firsts) is distinct from cardinality(p_participant_ids) then
    raise exception 'a row of participant_outbox_sequences was deleted meanwhile'
      using errcode = '40001',
            hint = 'Run the whole transaction again.';
  end if;
  return v_firsts;
end
$$;

comment on function symphony.allocate_outbox_sequences(text[], int[]) is
  'Allocates sequence numbers for each participant and returns the first of each; the numbers are locked until the transaction ends.';
