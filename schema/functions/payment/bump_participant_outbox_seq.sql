-- Takes the next sequence number of a participant.
--
-- One atomic upsert. Its row lock lasts until the caller's transaction ends: that is what makes sequence
-- order commit order and leaves no gaps, since a rollback gives the number back before anybody can take
-- the next. It is also what makes enqueues for one participant wait for each other.
-- Locks: the participant's row. For: the enqueue functions and redrive.
create or replace function symphony.bump_participant_outbox_seq(p_participant_id text)
  returns bigint
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_taken bigint;
begin
  insert into participant_outbox_sequences as s (participant_id, next_sequence_id)
  values (p_participant_id, 2)
  on conflict (participant_id) do update
    set next_sequence_id = s.next_sequence_id + 1
  returning s.next_sequence_id - 1 into v_taken;
  return v_taken;
end
$$;

comment on function symphony.bump_participant_outbox_seq(text) is
  'Takes the next sequence number of a participant and holds it until the transaction ends.';
