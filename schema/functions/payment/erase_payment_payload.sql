-- Erases the payload of a payment that has ended: a tombstone with a salted digest replaces it in the ledger and in the
-- quarantine.
--
-- A payment is the outbox and all that redrives link with it: they have the same payload, so all of them are erased or
-- none. It is refused while one of them is pending, and while the last one is a dead letter that no operator has
-- resolved. The digest of the idempotency key is salted too: replays stay recognised, and guessing the payload from it
-- ends. After this the payment cannot be redriven. A second erasure is refused unless a row with the payload has come
-- back, for example by a restore; then it is logged again.
--
-- tables names the tables that still have the old payload in dead rows, until VACUUM.
-- Locks: the key, then the rows that it changes.
-- Raises: P7003, P7005, 25000 outside READ COMMITTED. For: symphony_operator.
create or replace function symphony.erase_payment_payload(
  p_outbox_id    uuid,
  p_actor        text,
  p_reason       text,
  out outbox_ids uuid[],
  out erased_at  timestamptz,
  out rows       int,
  out tables     text[])
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set plan_cache_mode = force_custom_plan
  set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  v_payment    record;
  v_state      record;
  v_salt       constant bytea := uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid());
  v_before     record;
  v_operations uuid[];
  v_outboxes   uuid[];
  v_in_ledger  text[];
  v_in_quarantine int;
begin
  perform check_argument('p_actor', p_actor, 200);
  perform check_argument('p_reason', p_reason, 2000);
  perform check_isolation();
  if p_outbox_id is null then
    raise exception 'p_outbox_id must not be null' using errcode = 'P7005';
  end if;

  -- One statement, so that a completion in between is seen as pending or as ended.
  select s.idempotency_key, s.instruction_id, s.rail_type
  into v_payment
  from (
    (select a.idempotency_key, a.instruction_id, a.rail_type
     from payment_outbox_attempts a
     where a.outbox_id = p_outbox_id
     limit 1)
    union all
    (select p.idempotency_key, p.instruction_id, p.rail_type
     from payment_outbox_pending p
     where p.outbox_id = p_outbox_id)
  ) s
  limit 1;
  if not found then
    raise exception 'there is no outbox %', p_outbox_id
      using errcode = 'P7005',
            hint = 'Take the outbox_id from symphony.payment_outboxes. An outbox that was archived is in its archive only.';
  end if;

  -- Redrives take this lock too.
  perform
  from payment_outbox_keys k
  where k.idempotency_key = v_payment.idempotency_key
    and k.instruction_id = v_payment.instruction_id
  for no key update;
  if not found then
    raise exception 'the key of outbox % is not registered', p_outbox_id
      using errcode = 'P7003',
            hint = 'Its row in symphony.payment_outbox_keys was lost, for example by a bad restore. Restore that row first.';
  end if;

  with recursive linked as (
    select p_outbox_id as outbox_id
    union
    select r.outbox_id
    from linked l
    cross join lateral (
      (select o.new_outbox_id as outbox_id
       from payment_outbox_operations o
       where o.outbox_id = l.outbox_id
         and o.operation = 'REDRIVE')
      union all
      (select o.outbox_id
       from payment_outbox_operations o
       where o.new_outbox_id = l.outbox_id)
    ) r
  )
  select array_agg(l.outbox_id order by l.outbox_id)
  into outbox_ids
  from linked l;

  select l.outbox_id, p.outbox_id is not null as pending
  into v_state
  from unnest(outbox_ids) as l (outbox_id)
  left join payment_outbox_pending p on p.outbox_id = l.outbox_id
  left join payment_outbox_attempts a
    on a.outbox_id = l.outbox_id
   and a.state = 'FAILED'
  where p.outbox_id is not null
     or (a.outbox_id is not null
         and outbox_resolution(a.outbox_id) is null
         and not exists (
           select
           from payment_outbox_operations o
           where o.outbox_id = a.outbox_id
             and o.operation in ('REDRIVE', 'CANCEL')))
  limit 1;
  if v_state.pending then
    raise exception 'the payload of outbox % is still needed: outbox % is pending', p_outbox_id, v_state.outbox_id
      using errcode = 'P7003',
            hint = 'Erase it when it has ended; symphony.outbox_operational_status shows its status.';
  elsif not v_state.pending then
    raise exception 'the payload of outbox % may still be needed: outbox % is an unresolved dead letter', p_outbox_id, v_state.outbox_id
      using errcode = 'P7003',
            hint = 'Resolve it with symphony.resolve_payment_outbox, or redrive it and wait until it has ended; then erase.';
  end if;

  select e.erased_at, o.actor
  into v_before
  from payment_payload_erasures e
  join payment_outbox_operations o on o.operation_id = e.operation_id
  where e.outbox_id = p_outbox_id;

  -- Every outbox at its first erasure; after that the outboxes with a payload that came back.
  v_outboxes := array(
    select l.outbox_id
    from unnest(outbox_ids) as l (outbox_id)
    left join payment_payload_erasures e on e.outbox_id = l.outbox_id
    where e.outbox_id is null
       or exists (
         select
         from payment_outbox_attempts a
         where a.outbox_id = l.outbox_id
           and not is_payload_tombstone(a.payload, e.erased_at))
       or exists (
         select
         from payment_outbox_quarantine q
         where q.outbox_id = l.outbox_id
           and not is_payload_tombstone(q.payload, e.erased_at))
    order by l.outbox_id);
  if v_outboxes = '{}' then
    raise exception 'the payload of outbox % was erased already', p_outbox_id
      using errcode = 'P7003',
            detail = format('It was erased on %s by %s.', v_before.erased_at, v_before.actor);
  end if;

  with logged as (
    insert into payment_outbox_operations as o (operation_id, operation, outbox_id, rail_type, actor, reason)
    select uuidv7(), 'ERASE', l.outbox_id, v_payment.rail_type, p_actor, p_reason
    from unnest(v_outboxes) as l (outbox_id)
    returning o.operation_id, o.outbox_id
  )
  select array_agg(l.operation_id order by l.outbox_id)
  into v_operations
  from logged l;

  erased_at := clock_timestamp();
  insert into payment_payload_erasures (outbox_id, operation_id, salt, erased_at)
  select l.outbox_id, l.operation_id, v_salt, erase_payment_payload.erased_at
  from unnest(v_outboxes, v_operations) as l (outbox_id, operation_id)
  on conflict (outbox_id) do nothing;

  with erased as (
    update payment_outbox_attempts a
    set payload = payload_tombstone(
          e.erased_at,
          salt_digest(outbox_content_digest(a.idempotency_key, a.instruction_id, a.participant_id, a.rail_type, a.payload), e.salt))
    from payment_payload_erasures e
    where a.outbox_id = any (v_outboxes)
      and e.outbox_id = a.outbox_id
      and not is_payload_tombstone(a.payload, e.erased_at)
    returning 'symphony.' || a.tableoid::regclass::text as in_table
  )
  select array_agg(x.in_table)
  into v_in_ledger
  from erased x;

  update payment_outbox_quarantine q
  set payload = payload_tombstone(
        e.erased_at,
        salt_digest(outbox_content_digest(q.idempotency_key, q.instruction_id, q.participant_id, q.rail_type, q.payload), e.salt))
  from payment_payload_erasures e
  where q.outbox_id = any (v_outboxes)
    and e.outbox_id = q.outbox_id
    and not is_payload_tombstone(q.payload, e.erased_at);
  get diagnostics v_in_quarantine = row_count;

  update payment_outbox_keys k
  set content_digest = salt_digest(k.content_digest, e.salt),
      digest_salt = e.salt
  from payment_payload_erasures e
  where k.idempotency_key = v_payment.idempotency_key
    and k.instruction_id = v_payment.instruction_id
    and e.outbox_id = k.outbox_id
    and k.digest_salt is null;

  rows := coalesce(cardinality(v_in_ledger), 0) + v_in_quarantine;
  tables := array(
    select distinct t.in_table
    from unnest(v_in_ledger || case when v_in_quarantine > 0 then array['symphony.payment_outbox_quarantine'] end) as t (in_table)
    order by t.in_table);
end
$$;

comment on function symphony.erase_payment_payload(uuid, text, text) is
  'Replaces the payload of an ended payment by a tombstone with a salted digest, in the ledger and the quarantine.';
