-- How long each kind of ended row is kept, and who said so. Null days: for ever.
create or replace view symphony.retention with (security_barrier) as
select k.kept,
       r.keep_days,
       symphony.retention_cutoff(k.kept) as cutoff,
       r.actor as changed_by,
       r.reason,
       r.database_user,
       r.created_at as changed_at
from (values ('payment_ledger'), ('payment_keys'), ('events'), ('metadata')) k (kept)
left join lateral (
  select p.keep_days, p.actor, p.reason, p.database_user, p.created_at
  from symphony.retention_policies p
  where p.kept = k.kept
  order by p.policy_no desc
  limit 1
) r on true;

comment on view symphony.retention is 'How long the ledger, keys, events and metadata are kept: keep_days, null for ever; cutoff; and who set it.';
