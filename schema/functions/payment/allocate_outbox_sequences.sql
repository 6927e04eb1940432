-- Allocates sequence numbers for several participants, and returns the number after the last of each.
--
-- The set-based form of bump_participant_outbox_seq, with the same guarantees: gapless within an epoch, and in commit order. It is one
-- upsert, in the order of the participants' names, so that two calls cannot deadlock. It takes all numbers of a
-- participant at once: under a held snapshot a batch leaves one dead version of a participant's row, and the next batch
-- of that participant reads it, which is little beside its rows.
-- Locks: the participants' rows, until the transaction ends. Raises: 40001 outside READ COMMITTED.
-- For: enqueue_payment_outbox_batch.
create or replace function symphony.allocate_outbox_sequences(
  p_participant_ids     text[],
  p_counts              int[],
  out participant_ids   text[],
  out next_sequence_ids bigint[])
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
#variable_conflict use_column
declare
  v_floor constant bigint := number_floor();
begin
  with allocated as (
    insert into participant_outbox_sequences as s (participant_id, next_sequence_id)
    select g.participant_id, v_floor + g.count + 1
    from unnest(p_participant_ids, p_counts) as g (participant_id, count)
    order by g.participant_id collate "C"
    on conflict (participant_id) do update
      set next_sequence_id = greatest(s.next_sequence_id, v_floor + 1) + excluded.next_sequence_id - v_floor - 1
    returning s.participant_id, s.next_sequence_id
  )
  select array_agg(a.participant_id::text), array_agg(a.next_sequence_id::bigint)
  into participant_ids, next_sequence_ids
  from allocated a;
end
$$;

comment on function symphony.allocate_outbox_sequences(text[], int[]) is
  'Allocates sequence numbers for each participant and returns the number after the last; they are locked until the transaction ends.';
