-- The participants, for roles that may not read the table. Their sequence counters are not shown.
create or replace view symphony.payment_participants as
select s.participant_id
from symphony.participant_outbox_sequences s;

comment on view symphony.payment_participants is 'Every participant.';
