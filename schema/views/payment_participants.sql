-- The participants, for those who may not read the table.
create or replace view symphony.payment_participants as
select s.participant_id,
       s.next_sequence_id - 1 as instructions
from symphony.participant_outbox_sequences s;

comment on view symphony.payment_participants is 'Every participant, and how many outboxes it ever had.';
