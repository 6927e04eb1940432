-- Removes idempotency keys past their retention whose outbox is neither pending nor in the ledger. By default none.
--
-- An enqueue writes no index for this: keys are found by a sweep of the table, 128 pages in each call, from where the last
-- call stopped (payment_key_cursor). swept_to_end says that this call read the last page, or that keys are kept for ever.
-- A later enqueue under a removed key is a new payment. Each removal is recorded in retention_removals.
-- Locks: the keys that it removes and the cursor, skipping what another session has locked. Raises: P7005, 25000 outside
-- READ COMMITTED. For: symphony_executor, symphony_operator.
create or replace function symphony.remove_expired_keys(p_limit int default 1000, out removed bigint, out swept_to_end boolean)
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set jit = off
  set enable_seqscan = off
  set enable_tidscan = on
as $$
declare
  c_sweep_pages constant bigint := 128;
  v_cutoff constant timestamptz := retention_cutoff('payment_keys');
  v_pages  bigint;
  v_page   bigint;
begin
  perform check_range('p_limit', p_limit, 1, 100000);
  perform check_isolation();
  removed := 0;
  swept_to_end := true;
  if v_cutoff is null then
    return;
  end if;
  select c.next_page into v_page from payment_key_cursor c for update skip locked;
  -- Without a row to lock, another call holds the cursor. There is no row before the first call.
  if not found then
    insert into payment_key_cursor as c default values on conflict do nothing returning c.next_page into v_page;
    if v_page is null then
      swept_to_end := false;
      return;
    end if;
  end if;
  v_pages := pg_relation_size('symphony.payment_outbox_keys') / current_setting('block_size')::int;
  if v_page >= v_pages then
    v_page := 0;
  end if;

  with expired as materialized (
    select k.ctid as row_id
    from payment_outbox_keys k
    where k.ctid >= format('(%s,0)', v_page)::tid
      and k.ctid < format('(%s,0)', v_page + c_sweep_pages)::tid
      and k.created_at < v_cutoff
      and k.outbox_id < uuidv7_lower_bound(v_cutoff)
      -- Scalar, so that a plan reaches both tables by their keys.
      and (select true from payment_outbox_pending p where p.outbox_id = k.outbox_id limit 1) is null
      and (select true from payment_outbox_attempts a where a.outbox_id = k.outbox_id limit 1) is null
    limit p_limit
    for update skip locked
  )
  delete from payment_outbox_keys k
  using expired e
  where k.ctid = e.row_id;
  get diagnostics removed = row_count;

  -- A full batch may have left keys behind in these pages: the next call goes over them again.
  swept_to_end := removed < p_limit and v_page + c_sweep_pages >= v_pages;
  update payment_key_cursor c
  set next_page = case when removed < p_limit then v_page + c_sweep_pages else v_page end;
  if removed > 0 then
    insert into retention_removals (kept, removed_rows, removed_before)
    values ('payment_keys', removed, v_cutoff);
  end if;
end
$$;

comment on function symphony.remove_expired_keys(int) is
  'Removes a batch of idempotency keys past their retention whose outbox is neither pending nor in the ledger; reads a bounded part of the registry.';
