-- Allocates the next sequence number of a participant.
--
-- One atomic upsert. Its row lock lasts until the transaction ends. So sequence order is commit order and there are no
-- gaps: a rollback returns the number before another transaction can take the next one. For the same reason enqueues
-- for one participant wait for each other.
--
-- Under a held snapshot every number leaves a dead version of the row. A search from the front of the index reads all
-- of them, and INSERT … ON CONFLICT searches that way. The newest version is last in the index, so this function
-- searches from the end. It uses a range, because for an equality the planner ignores the order. Its callers disable
-- sequential scans; to set that here once more would cost as much as the search.
-- Locks: the participant's row, until the transaction ends. For: the enqueue functions and redrive_payment_outbox.
create or replace function symphony.bump_participant_outbox_seq(p_participant_id text)
  returns bigint
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
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
  'Allocates the next sequence number of a participant and locks it until the transaction ends.';
