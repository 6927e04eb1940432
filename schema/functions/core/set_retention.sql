-- Sets for how many days ended rows of a kind are kept. Null days: for ever, which is the default.
--
-- p_kept is payment_ledger, payment_keys, events or metadata. A key is kept at least as long as the ledger: after its
-- removal a payment could be enqueued under it again. Nothing is removed by this call. The change is in
-- retention_policies and, with the payment lane, in the operations log.
-- Locks: retention_policies against other changes. Raises: P7003 if keys would be kept shorter than the ledger, P7005,
-- 25000 outside READ COMMITTED, 55P03 after 5 s behind a lock. For: symphony_operator.
create or replace function symphony.set_retention(p_kept text, p_keep_days int, p_actor text, p_reason text)
  returns void
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set lock_timeout = '5s'
as $$
declare
  v_days   jsonb;
  v_before jsonb;
begin
  perform check_argument('p_actor', p_actor, 200);
  perform check_argument('p_reason', p_reason, 2000);
  if p_kept is null or p_kept not in ('payment_ledger', 'payment_keys', 'events', 'metadata') then
    raise exception 'p_kept must be payment_ledger, payment_keys, events or metadata, not %', coalesce(p_kept, 'null')
      using errcode = 'P7005';
  elsif p_keep_days is not null then
    perform check_range('p_keep_days', p_keep_days, 1, 36500);
  end if;
  perform check_isolation();
  lock table retention_policies in share row exclusive mode;

  v_days := coalesce((
    select jsonb_object_agg(w.kept, w.keep_days)
    from (
      select distinct on (r.kept) r.kept, r.keep_days
      from retention_policies r
      order by r.kept, r.policy_no desc
    ) w), '{}');
  v_before := jsonb_build_object('kept', p_kept, 'keep_days', v_days -> p_kept);
  v_days := v_days || jsonb_build_object(p_kept, p_keep_days);
  -- Null is for ever.
  if (v_days ->> 'payment_keys')::int < coalesce((v_days ->> 'payment_ledger')::int, 2147483647) then
    raise exception 'idempotency keys would be kept for % days, and the ledger %', v_days ->> 'payment_keys',
      coalesce('for ' || (v_days ->> 'payment_ledger') || ' days', 'for ever')
      using errcode = 'P7003',
            hint = 'Keep payment_keys at least as long as payment_ledger: after its removal a key can be used for another payment. '
                   'To shorten both, set payment_ledger first.';
  end if;

  insert into retention_policies (kept, keep_days, actor, reason)
  values (p_kept, p_keep_days, p_actor, p_reason);
  -- The log belongs to the payment lane, which a database need not have.
  if to_regclass('symphony.payment_outbox_operations') is not null then
    insert into payment_outbox_operations (operation_id, operation, policy_before, policy_after, actor, reason)
    values (uuidv7(), 'SET_RETENTION', v_before, jsonb_build_object('kept', p_kept, 'keep_days', p_keep_days), p_actor, p_reason);
  end if;
end
$$;

comment on function symphony.set_retention(text, int, text, text) is
  'Sets for how many days the ledger, keys, events or metadata are kept; null is for ever.';
