-- Says whether an entry may move from one status to another. The only place in SQL that lists the five legal moves.
--
-- Staying in a status is no move. Rust lists the same five in Status::can_transition_to; proof 24 compares both.
-- Locks: nothing. For: the trigger.
create or replace function symphony.metadata_move_is_legal(p_from symphony.metadata_status, p_to symphony.metadata_status)
  returns boolean
  language sql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
  select (p_from, p_to) in (
    ('PENDING', 'PROCESSING'),
    ('PROCESSING', 'PUBLISHED'),
    ('PROCESSING', 'FAILED'),
    ('FAILED', 'PROCESSING'),
    ('FAILED', 'DLQ'));
$$;

comment on function symphony.metadata_move_is_legal(symphony.metadata_status, symphony.metadata_status) is
  'Whether an entry may move from one status to another: five moves are legal.';
