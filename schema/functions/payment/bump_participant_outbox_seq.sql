-- Allocates the next sequence number of a participant.
--
-- The lock of the participant's row lasts until the transaction ends. So sequence order is commit order and there are no
-- gaps: a rollback returns the number before another transaction can take the next one. For the same reason enqueues
-- for one participant wait for each other. Only a new epoch makes a gap: its first number follows p_floor, which is
-- number_floor() if it is null.
--
-- Under a held snapshot every number leaves a dead version of the row. A search from the front of the index reads all
-- of them, and INSERT … ON CONFLICT searches that way. The newest version is last in the index, so the UPDATE
-- searches from the end. It uses a range, because for an equality the planner ignores the order. A participant without a
-- row gets one by the upsert, which also decides if another session has just inserted it. Its callers disable
-- sequential scans; to set that here once more would cost as much as the search.
-- Locks: the participant's row, until the transaction ends. For: the enqueue functions and redrive_payment_outbox.
create or replace function symphony.bump_participant_outbox_seq(p_participant_id text, p_floor bigint default null)
  returns bigint
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_floor constant bigint := coalesce(p_floor, number_floor());
  v_taken bigint;
begin
  update participant_outbox_sequences s
  set next_sequence_id = greatest(s.next_sequence_id, v_floor + 1) + 1
  where s.ctid = (
    select l.ctid
    from participant_outbox_sequences l
    where l.participant_id between p_participant_id and p_participant_id
    order by l.participant_id desc
    limit 1)
  returning s.next_sequence_id - 1 into v_taken;
  if not found then
    insert into participant_outbox_sequences as s (participant_id, next_sequence_id)
    values (p_participant_id, v_floor + 2)
    on conflict (participant_id) do update
      set next_sequence_id = greatest(s.next_sequence_id, v_floor + 1) + 1
    returning s.next_sequence_id - 1 into v_taken;
  end if;
  return v_taken;
end
$$;

comment on function symphony.bump_participant_outbox_seq(text, bigint) is
  'Allocates the next sequence number of a participant and locks it until the transaction ends.';
