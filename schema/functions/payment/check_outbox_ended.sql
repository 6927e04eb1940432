-- Refuses to delete a pending row whose outbox has no terminal ledger row: no committed payment disappears without a
-- record.
--
-- It applies to every role, the owner and superusers included. The functions that end an outbox append its terminal
-- ledger row in the statement that deletes the pending row. So the statement-level trigger checks after that
-- statement, once for all of its rows. The row-level trigger fires only where statement-level triggers do not: in the
-- apply worker of a subscription.
-- Locks: nothing. Raises: P0001. For: triggers.
create or replace function symphony.check_outbox_ended()
  returns trigger
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_generic_plan
  set enable_seqscan = off
  set enable_bitmapscan = off
as $$
declare
  v_ids      uuid[];
  v_first_id uuid;
  v_last_id  uuid;
  v_lost     uuid;
begin
  if tg_level = 'ROW' then
    v_ids := array[old.outbox_id];
  else
    v_ids := array(select d.outbox_id from deleted d order by d.outbox_id);
  end if;
  -- The range lets PostgreSQL open only the partitions that have these outboxes.
  v_first_id := v_ids[1];
  v_last_id := v_ids[cardinality(v_ids)];
  select d.outbox_id
  into v_lost
  from unnest(v_ids) as d (outbox_id)
  where (
    select true
    from payment_outbox_attempts a
    where a.outbox_id between v_first_id and v_last_id
      and a.outbox_id = d.outbox_id
      and a.state in ('DISPATCHED', 'FAILED')
    limit 1) is null
  limit 1;
  if v_lost is not null then
    raise exception 'delete on payment_outbox_pending: outbox % has not ended', v_lost
      using errcode = 'P0001',
            hint = 'A completion deletes the pending row when it records the terminal outcome; see schema/README.md.';
  end if;
  return null;
end
$$;

comment on function symphony.check_outbox_ended() is
  'Trigger: refuses with P0001 to delete a pending row whose outbox has no terminal ledger row, for every role.';
