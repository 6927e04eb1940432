-- Compares what a bank says that it has executed with what the database knows, and returns the differences.
--
-- The arrays are the rows of the bank's export for one rail: idempotency key, the bank's reference, amount, currency and time of the
-- execution. The export must have every payment that the bank executed on this rail from p_from until p_to. A finding is
--
-- - EXECUTED_WITHOUT_ROW: the bank executed a key that is not registered here. A failover or restore lost it, or it is not ours.
-- - EXECUTED_NOT_DISPATCHED: the key is here, and its newest outbox is pending or FAILED. A failure that an operator has resolved
--   as PAID is no finding.
-- - EXECUTED_TWICE: the export has the key more than once with different references.
-- - AMOUNT_DIFFERS: both sides have an amount or currency, and they differ.
-- - DISPATCHED_NOT_IN_EXPORT: the ledger has it as DISPATCHED on this rail in that time, and the export does not.
--
-- Changes nothing but the audit log, which keeps the counts. It closes the orphans of the rail whose time is in p_from until p_to:
-- see is_open_orphan.
-- The ledger is read by the time of the enqueue, from 31 days before p_from: a payment that was scheduled longer is not found absent.
-- Locks: nothing. Raises: P7003 if the ledger of the time is archived, P7005, P7006, 25000 outside READ COMMITTED.
-- For: symphony_operator.
create or replace function symphony.reconcile_bank_export(
  p_rail_type         text,
  p_from              timestamptz,
  p_to                timestamptz,
  p_idempotency_keys  text[],
  p_rail_references   text[],
  p_amounts           text[],
  p_currencies        text[],
  p_executed_ats      timestamptz[],
  p_actor             text,
  p_reason            text)
  returns table (
    finding         text,
    idempotency_key text,
    rail_reference  text,
    amount          text,
    currency        text,
    executed_at     timestamptz,
    outbox_id       uuid,
    instruction_id  text,
    state           text,
    error_code      text,
    ledger_reference text,
    is_orphan       boolean)
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set jit = off
  set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  v_count    constant int := coalesce(cardinality(p_idempotency_keys), 0);
  v_findings jsonb;
begin
  perform check_argument('p_rail_type', p_rail_type, 200);
  perform check_argument('p_actor', p_actor, 200);
  perform check_argument('p_reason', p_reason, 2000);
  perform check_isolation();
  perform registered_rail(p_rail_type);
  perform check_range('the number of rows', v_count, 0, 100000);
  if (p_from < p_to) is not true then
    raise exception 'p_from must be before p_to' using errcode = 'P7005';
  elsif coalesce(cardinality(p_rail_references), 0) <> v_count or coalesce(cardinality(p_amounts), 0) <> v_count
        or coalesce(cardinality(p_currencies), 0) <> v_count or coalesce(cardinality(p_executed_ats), 0) <> v_count then
    raise exception 'the arrays must have the same number of elements' using errcode = 'P7005';
  elsif array_position(p_idempotency_keys, null) is not null then
    raise exception 'p_idempotency_keys must not have a null' using errcode = 'P7005';
  end if;

  with exported as materialized (
    select g.*
    from unnest(p_idempotency_keys, p_rail_references, p_amounts, p_currencies, p_executed_ats) with ordinality
      as g (idempotency_key, rail_reference, amount, currency, executed_at, place)
  ),
  known as (
    select e.*, k.outbox_id, k.instruction_id, a.state, a.error_code, a.rail_reference as ledger_reference,
           a.payload ->> 'amount' as ledger_amount, a.payload ->> 'currency' as ledger_currency, p.is_pending, r.is_archived, o.is_paid
    from exported e
    left join lateral (
      select k.outbox_id, k.instruction_id
      from payment_outbox_keys k
      where k.idempotency_key = e.idempotency_key
      order by k.instruction_id
      limit 1
    ) k on true
    left join lateral (
      select a.state, a.error_code, a.rail_reference, a.payload
      from payment_outbox_attempts a
      where a.outbox_id = k.outbox_id
        and a.state in ('DISPATCHED', 'FAILED')
      limit 1
    ) a on true
    left join lateral (
      select true as is_pending from payment_outbox_pending p where p.outbox_id = k.outbox_id limit 1
    ) p on true
    left join lateral (
      select true as is_archived
      from payment_ledger_archives r
      where k.outbox_id < r.to_id
        and (r.from_id is null or k.outbox_id >= r.from_id)
      limit 1
    ) r on true
    left join lateral (
      select true as is_paid
      from payment_outbox_operations o
      where o.outbox_id = k.outbox_id
        and o.resolution = 'PAID'
      limit 1
    ) o on true
  ),
  dispatched as (
    select a.outbox_id, a.instruction_id, a.idempotency_key, a.rail_reference, a.completed_at
    from payment_outbox_attempts a
    where a.outbox_id >= uuidv7_lower_bound(p_from - interval '31 days')
      and a.outbox_id <= uuidv7_lower_bound(p_to)
      and a.rail_type = p_rail_type
      and a.state = 'DISPATCHED'
      and a.completed_at >= p_from
      and a.completed_at < p_to
  ),
  findings as (
    select case
             when k.outbox_id is null then 'EXECUTED_WITHOUT_ROW'
             when k.state is distinct from 'DISPATCHED' then 'EXECUTED_NOT_DISPATCHED'
             else 'AMOUNT_DIFFERS'
           end as finding,
           k.idempotency_key, k.rail_reference, k.amount, k.currency, k.executed_at, k.outbox_id, k.instruction_id,
           coalesce(k.state::text, case when k.is_pending then 'PENDING' end) as state, k.error_code, k.ledger_reference
    from known k
    where k.outbox_id is null
       or (k.state is distinct from 'DISPATCHED' and k.is_paid is null and (k.state is not null or k.is_archived is null))
       or (k.state = 'DISPATCHED' and (
             k.currency <> k.ledger_currency
             or case
                  when k.amount ~ '^[0-9]{1,30}(\.[0-9]{1,30})?$' and k.ledger_amount ~ '^[0-9]{1,30}(\.[0-9]{1,30})?$'
                    then k.amount::numeric <> k.ledger_amount::numeric
                end))
    union all
    select 'EXECUTED_TWICE', e.idempotency_key, string_agg(distinct e.rail_reference, ' ' order by e.rail_reference), null, null,
           max(e.executed_at), null, null, null, null, null
    from exported e
    group by e.idempotency_key
    having count(distinct e.rail_reference) > 1
    union all
    select 'DISPATCHED_NOT_IN_EXPORT', d.idempotency_key, null, null, null, null, d.outbox_id, d.instruction_id, 'DISPATCHED', null,
           d.rail_reference
    from dispatched d
    left join (select distinct e.idempotency_key from exported e) e on e.idempotency_key = d.idempotency_key
    where e.idempotency_key is null
  )
  select coalesce(jsonb_agg(to_jsonb(f) || jsonb_build_object('is_orphan', (
           select count(*) > 0 from payment_orphans p where p.idempotency_key = f.idempotency_key))), '[]')
  into v_findings
  from findings f;

  insert into payment_outbox_operations (operation_id, operation, rail_type, policy_after, actor, reason)
  values (
    uuidv7(), 'RECONCILE', p_rail_type,
    jsonb_build_object(
      'from', p_from, 'to', p_to, 'rows', v_count,
      'findings', (select coalesce(jsonb_object_agg(c.finding, c.number), '{}')
                   from (select f ->> 'finding' as finding, count(*) as number from jsonb_array_elements(v_findings) f group by 1) c)),
    p_actor, p_reason);

  return query
    select f.*
    from jsonb_to_recordset(v_findings) as f (
      finding text, idempotency_key text, rail_reference text, amount text, currency text, executed_at timestamptz, outbox_id uuid,
      instruction_id text, state text, error_code text, ledger_reference text, is_orphan boolean)
    order by f.finding, f.executed_at, f.idempotency_key;
end
$$;

comment on function symphony.reconcile_bank_export(text, timestamptz, timestamptz, text[], text[], text[], text[], timestamptz[], text, text) is
  'Compares a bank''s export of executed payments with the database, returns the differences, and logs the operation.';
