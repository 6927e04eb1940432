-- Counts the entries that are not published, up to ten thousand of each kind.
--
-- Each entry is in one of five indexes, and each index is read from its front up to ten thousand entries; the column
-- more says that at least one index has more. Published entries are not read. The ages are those of the counted
-- entries.
-- Locks: nothing. Raises: nothing. For: symphony_operator, symphony_readonly, symphony_auditor.
create or replace function symphony.metadata_backlog(
  out due                        bigint,
  out processing                 bigint,
  out stuck                      bigint,
  out scheduled                  bigint,
  out dlq                        bigint,
  out oldest_pending_age_seconds float8,
  out oldest_due_age_seconds     float8,
  out more                       boolean)
  language plpgsql
  stable
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
declare
  c_max_rows constant int := 10000;
begin
  select f.seen + r.due,
         c.seen - c.stuck,
         c.stuck + e.seen,
         r.seen - r.due,
         d.seen,
         greatest(coalesce(extract(epoch from now() - least(f.oldest, r.created, c.created, e.created)), 0), 0),
         greatest(coalesce(extract(epoch from now() - least(f.oldest, r.oldest, c.oldest + interval '5 minutes', e.oldest)), 0), 0),
         c_max_rows in (f.seen, r.seen, c.seen, e.seen, d.seen)
  into due, processing, stuck, scheduled, dlq, oldest_pending_age_seconds, oldest_due_age_seconds, more
  from (
    select count(*) as seen, min(w.created_at) as oldest
    from (
      select o.created_at
      from metadata_outbox o
      where o.status = 'PENDING'
      order by o.created_at, o.id
      limit c_max_rows
    ) w
  ) f
  cross join (
    select count(*) as seen,
           count(*) filter (where w.next_retry_at <= now()) as due,
           min(w.next_retry_at) filter (where w.next_retry_at <= now()) as oldest,
           min(w.created_at) as created
    from (
      select o.next_retry_at, o.created_at
      from metadata_outbox o
      where o.status = 'FAILED'
        and o.retry_count < o.max_retries
      order by o.next_retry_at, o.id
      limit c_max_rows
    ) w
  ) r
  cross join (
    select count(*) as seen,
           count(*) filter (where w.processing_started_at < now() - interval '5 minutes') as stuck,
           min(w.processing_started_at) filter (where w.processing_started_at < now() - interval '5 minutes') as oldest,
           min(w.created_at) as created
    from (
      select o.processing_started_at, o.created_at
      from metadata_outbox o
      where o.status = 'PROCESSING'
      order by o.processing_started_at, o.id
      limit c_max_rows
    ) w
  ) c
  cross join (
    select count(*) as seen, min(w.updated_at) as oldest, min(w.created_at) as created
    from (
      select o.updated_at, o.created_at
      from metadata_outbox o
      where o.status = 'FAILED'
        and o.retry_count >= o.max_retries
      order by o.updated_at, o.id
      limit c_max_rows
    ) w
  ) e
  cross join (
    select count(*) as seen
    from (
      select
      from metadata_outbox o
      where o.status = 'DLQ'
      order by o.updated_at, o.id
      limit c_max_rows
    ) w
  ) d;
end
$$;

comment on function symphony.metadata_backlog() is
  'How many entries are due, processing, stuck, scheduled and in the DLQ, each counted up to ten thousand.';
