-- Takes the next sequence number of a participant.
--
-- One atomic upsert. Its row lock lasts until the caller's transaction ends: that is what makes sequence
-- order commit order and leaves no gaps, since a rollback gives the number back before anybody can take
-- the next. It is also what makes enqueues for one participant wait for each other.
--
-- While an old snapshot lives, every number that was given out since leaves a version of the row behind, and whoever looks for the
-- living one from the front walks past all of them; an INSERT … ON CONFLICT does. The newest stands last in the index: it is looked for from the
-- end, and by a range, because of an equality the planner knows that its order is of no use.
-- Locks: the participant's row. For: the enqueue functions and redrive.
create or replace function symphony.bump_participant_outbox_seq(p_participant_id text)
  returns bigint
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set enable_seqscan = off
as $$
declare
  v_place tid;
  v_taken bigint;
begin
  select s.ctid
  into v_place
  from participant_outbox_sequences s
  where s.participant_id between p_participant_id and p_participant_id
  order by s.participant_id desc
  limit 1
  for no key update;
  if found then
    update participant_outbox_sequences s
    set next_sequence_id = s.next_sequence_id + 1
    where s.ctid = v_place
    returning s.next_sequence_id - 1 into v_taken;
  else
    insert into participant_outbox_sequences as s (participant_id, next_sequence_id)
    values (p_participant_id, 2)
    on conflict (participant_id) do update
      set next_sequence_id = s.next_sequence_id + 1
    returning s.next_sequence_id - 1 into v_taken;
  end if;
  return v_taken;
end
$$;

comment on function symphony.bump_participant_outbox_seq(text) is
  'Takes the next sequence number of a participant and holds it until the transaction ends.';
