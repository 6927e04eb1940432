-- Returns the totals of the payment lane and the same per rail: the backlog of payment_backlog, and the dead letters.
--
-- Counting pending rows stops at p_max_rows for each rail and kind; a null p_max_rows counts all of them. more_due says
-- that due_unleased_count, leased_count and expired_lease_count are lower bounds, more_scheduled the same of
-- scheduled_count. Parked rows are due. Dead letters are counted exactly, from the index of failures: a bound would hide
-- an old one that may have been paid. That takes time in proportion to the failures of the ledger, not to the queue. So are
-- held_streams: the participants of a rail whose later payments a failure holds.
-- The payments that await confirmation are pending ones, so they are in the counts above too; of a rail at most as many are
-- counted as of its pending rows. The age of the oldest is exact.
-- Locks: nothing. Raises: P7005.
-- For: supervisor_outbox_status, whose readers need EXECUTE because PostgreSQL calls a view's functions as the reader.
create or replace function symphony.payment_status(
  p_max_rows                     int default 10000,
  out due_unleased_count         bigint,
  out leased_count               bigint,
  out expired_lease_count        bigint,
  out scheduled_count            bigint,
  out oldest_pending_age_seconds numeric,
  out oldest_due_age_seconds     numeric,
  out dlq                        bigint,
  out dlq_unknown                bigint,
  out rails                      jsonb,
  out more_due                   boolean,
  out more_scheduled             boolean,
  out estimate                   bigint,
  out awaiting_confirmation_count             bigint,
  out oldest_awaiting_confirmation_age_seconds numeric)
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
#variable_conflict use_column
begin
  with backlog as materialized (
    select b.estimate, b.rails
    from payment_backlog(p_max_rows) b
  ),
  pending as (
    select p.*
    from backlog b
    cross join lateral jsonb_to_recordset(b.rails) as p (
      rail_type text, due bigint, leased bigint, expired bigint, scheduled bigint, parked bigint,
      oldest_pending_age_seconds numeric, oldest_due_age_seconds numeric, oldest_parked_age_seconds numeric,
      more_due boolean, more_scheduled boolean, more_parked boolean)
  ),
  dead_letters as (
    select a.rail_type,
           count(*) as dlq,
           count(*) filter (where coalesce(a.error_code in (select u.error_code from unknown_outcome_codes u), false)) as dlq_unknown
    from payment_outbox_attempts a
    left join payment_outbox_operations o on o.outbox_id = a.outbox_id
    where a.state = 'FAILED'
      and o.operation_id is null
    group by a.rail_type
  ),
  holds as (
    select h.rail_type, count(distinct h.participant_id) as held_streams
    from payment_stream_holds h
    group by h.rail_type
  ),
  described as (
    select r.rail_type,
           r.paused,
           r.held_since_epoch,
           coalesce(h.held_streams, 0) as held_streams,
           coalesce(p.due + p.parked, 0) as due_unleased_count,
           coalesce(p.leased, 0) as leased_count,
           coalesce(p.expired, 0) as expired_lease_count,
           coalesce(p.scheduled, 0) as scheduled_count,
           coalesce(p.oldest_pending_age_seconds, 0) as oldest_pending_age_seconds,
           greatest(p.oldest_due_age_seconds, p.oldest_parked_age_seconds, 0) as oldest_due_age_seconds,
           coalesce(d.dlq, 0) as dlq,
           coalesce(d.dlq_unknown, 0) as dlq_unknown,
           coalesce(p.more_due or p.more_parked, false) as more_due,
           coalesce(p.more_scheduled, false) as more_scheduled,
           w.awaiting_confirmation_count,
           greatest(coalesce(extract(epoch from now() - w.oldest_accepted_at), 0), 0)::numeric(20, 3) as oldest_awaiting_confirmation_age_seconds
    from payment_rails r
    left join pending p on p.rail_type = r.rail_type
    left join dead_letters d on d.rail_type = r.rail_type
    left join holds h on h.rail_type = r.rail_type
    cross join lateral (
      select count(*) as awaiting_confirmation_count, min(a.accepted_at) as oldest_accepted_at
      from (
        select w.accepted_at
        from payment_awaiting_confirmation w
        where w.rail_type = r.rail_type
        order by w.accepted_at
        limit max_rows_per_rail(p_max_rows)
      ) a
    ) w
    where r.retired_at is null
       or p.rail_type is not null
       or d.rail_type is not null
  )
  select coalesce(sum(r.due_unleased_count), 0),
         coalesce(sum(r.leased_count), 0),
         coalesce(sum(r.expired_lease_count), 0),
         coalesce(sum(r.scheduled_count), 0),
         coalesce(max(r.oldest_pending_age_seconds), 0),
         coalesce(max(r.oldest_due_age_seconds), 0),
         coalesce(sum(r.dlq), 0),
         coalesce(sum(r.dlq_unknown), 0),
         coalesce(jsonb_agg(to_jsonb(r.*) order by r.rail_type), '[]'),
         coalesce(bool_or(r.more_due), false),
         coalesce(bool_or(r.more_scheduled), false),
         (select b.estimate from backlog b),
         coalesce(sum(r.awaiting_confirmation_count), 0),
         coalesce(max(r.oldest_awaiting_confirmation_age_seconds), 0)
  into due_unleased_count, leased_count, expired_lease_count, scheduled_count, oldest_pending_age_seconds, oldest_due_age_seconds,
       dlq, dlq_unknown, rails, more_due, more_scheduled, estimate, awaiting_confirmation_count, oldest_awaiting_confirmation_age_seconds
  from described r;
end
$$;

comment on function symphony.payment_status(int) is
  'Totals over all rails, and for each, with dead letters. Counting pending rows stops at p_max_rows; null counts all.';
