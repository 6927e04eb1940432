-- Checks that the database still has the last commits that it has acknowledged to a worker, before the worker claims on a
-- new session. Returns the current epoch.
--
-- WAL is a prefix: if a commit is there, none before it is lost. If one is missing, history was lost, even where the
-- server's identity does not show it, as with files that were copied and started without recovery. Then this opens a new
-- epoch, unless a newer one than p_epoch was opened meanwhile. p_epoch is the epoch that the worker has seen; null for a
-- worker that remembers nothing. A worker must refuse a server whose epoch is lower: it may be an old primary.
--
-- A commit is a claim, with its lease token, or a completion, without. The evidence is the lease itself, or a ledger row of this
-- worker for that lease. A lease that the worker has released leaves no evidence: it must not name it.
-- Locks: as a claim; with a new epoch as advance_epoch. Raises: P7005, 25000 outside READ COMMITTED, 55P03.
-- For: symphony_executor.
create or replace function symphony.check_worker_history(
  p_worker_id    text,
  p_epoch        bigint,
  p_outbox_ids   uuid[],
  p_claimed_ats  timestamptz[],
  p_lease_tokens uuid[])
  returns bigint
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set lock_timeout = '5s'
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
declare
  v_lost uuid;
begin
  perform check_argument('p_worker_id', p_worker_id, 200);
  if coalesce(cardinality(p_outbox_ids), 0) > 0 then
    perform check_range('the number of commits', cardinality(p_outbox_ids), 1, 100);
  end if;
  perform check_isolation();
  perform ensure_epoch(p_worker_id);
  select c.outbox_id
  into v_lost
  from unnest(p_outbox_ids, p_claimed_ats, p_lease_tokens) as c (outbox_id, claimed_at, lease_token)
  where (
      select true
      from payment_outbox_pending p
      where p.outbox_id = c.outbox_id
        and p.lease_token = c.lease_token
      limit 1) is null
    and (
      select true
      from payment_outbox_attempts a
      where a.outbox_id = c.outbox_id
        and a.worker_id = p_worker_id
        and a.claimed_at = c.claimed_at
      limit 1) is null
    -- What was archived is no evidence any more.
    and (
      select true
      from payment_ledger_archives r
      where c.outbox_id < r.to_id
        and (r.from_id is null or c.outbox_id >= r.from_id)
      limit 1) is null
  limit 1;
  if v_lost is not null and current_epoch() = p_epoch then
    -- Of several workers that miss commits one opens the epoch: the others look again once they have the lock of advance_epoch.
    lock table epoch in exclusive mode;
    if current_epoch() = p_epoch then
      perform advance_epoch(
        p_worker_id,
        format('worker %s does not find a commit that the database has acknowledged: a lease on outbox %s', p_worker_id, v_lost), null);
    end if;
  end if;
  return current_epoch();
end
$$;

comment on function symphony.check_worker_history(text, bigint, uuid[], timestamptz[], uuid[]) is
  'Checks that the last acknowledged commits of a worker are there, and opens a new epoch if one is not. Returns the current epoch.';
