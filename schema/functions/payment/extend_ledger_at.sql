-- Makes the partitions of the ledger that a time needs, and indexes a partition that no completion writes to any more.
--
-- Four partitions start after p_at; the last is open-ended, so that a completion never fails for want of one. To add a
-- partition, the last is detached, attached again with an upper bound, and followed by a new one, in one transaction. The last
-- is empty unless four weeks have passed without a call: otherwise PostgreSQL reads it while completions wait, so that is done
-- only up to p_max_scan_mb. A partition that ends before p_at and has no pending row in its range gets the index that
-- searches by participant use; at most one in each call, up to p_max_scan_mb, and none in a call that added partitions,
-- because the lock on the ledger lasts until the transaction ends.
--
-- If nothing is to be done it takes no lock. skipped says what was put off and why; the next call tries again.
-- Locks: the ledger, for as long as the transaction lasts if partitions were added; it waits at most 200 ms for it.
-- Raises: P7005, 25000 outside READ COMMITTED. For: extend_payment_ledger.
create or replace function symphony.extend_ledger_at(
  p_at                 timestamptz,
  p_max_scan_mb        int,
  out created          text[],
  out indexed          text[],
  out partitions_ahead int,
  out open_since       timestamptz,
  out skipped          text)
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set lock_timeout = '200ms'
  set jit = off
as $$
declare
  c_ahead   constant int := 4;
  v_max_scan constant bigint := p_max_scan_mb * 1048576::bigint;
  v_last    record;
  v_closed  record;
  v_starts  timestamptz[];
  v_name    text;
  v_unindexed int;
begin
  created := '{}';
  indexed := '{}';
  perform check_range('p_max_scan_mb', p_max_scan_mb, 0, 1000000);
  select count(*) filter (where p.starts_at > p_at), max(p.starts_at), count(*) filter (where p.ends_at <= p_at and not p.is_searchable)
  into partitions_ahead, open_since, v_unindexed
  from payment_ledger_partitions() p;

  if partitions_ahead < c_ahead then
    perform check_isolation();
    begin
      -- One call at a time, on a lock that only the owner can take.
      lock table only payment_outbox_attempts in share update exclusive mode nowait;
      select p.partition_name, p.from_id, p.starts_at, p.ends_at
      into v_last
      from payment_ledger_partitions() p
      order by p.starts_at desc nulls last
      limit 1;
      v_starts := array(
        select s.starts_at
        from (select ledger_partition_start(p_at, n.n) as starts_at from generate_series(1, c_ahead) as n (n)) s
        where s.starts_at > v_last.starts_at or v_last.starts_at is null
        order by s.starts_at);

      if v_starts <> '{}' then
        if v_last.partition_name is null then
          perform create_ledger_partition('payment_outbox_attempts_from_start');
          created := created || 'payment_outbox_attempts_from_start'::text;
        elsif exists (select from payment_outbox_attempts a where a.outbox_id >= uuidv7_lower_bound(v_starts[1])) then
          raise exception '% has outbox ids later than %, so it stays the last partition', v_last.partition_name, v_starts[1]
            using errcode = 'check_violation';
        elsif exists (select from payment_outbox_attempts a where a.outbox_id >= coalesce(v_last.from_id, '00000000-0000-0000-0000-000000000000'))
              and pg_relation_size(format('symphony.%I', v_last.partition_name)::regclass) > v_max_scan then
          raise exception '% has more than % MB of rows, which must be read to end it', v_last.partition_name, p_max_scan_mb
            using errcode = 'check_violation';
        end if;
        for i in 1 .. cardinality(v_starts) loop
          v_name := 'payment_outbox_attempts_from_' || to_char(v_starts[i] at time zone 'UTC', 'YYYYMMDD');
          perform create_ledger_partition(v_name);
          created := created || v_name;
        end loop;

        lock table only payment_outbox_attempts in access exclusive mode;
        if v_last.partition_name is not null then
          execute format('alter table symphony.payment_outbox_attempts detach partition symphony.%I', v_last.partition_name);
        end if;
        execute format(
          'alter table symphony.payment_outbox_attempts attach partition symphony.%I for values from (%s) to (%L)',
          coalesce(v_last.partition_name, 'payment_outbox_attempts_from_start'), coalesce(quote_literal(v_last.from_id), 'minvalue'),
          uuidv7_lower_bound(v_starts[1]));
        for i in 1 .. cardinality(v_starts) loop
          execute format(
            'alter table symphony.payment_outbox_attempts attach partition symphony.%I for values from (%L) to (%s)',
            'payment_outbox_attempts_from_' || to_char(v_starts[i] at time zone 'UTC', 'YYYYMMDD'), uuidv7_lower_bound(v_starts[i]),
            coalesce(quote_literal(uuidv7_lower_bound(v_starts[i + 1])), 'maxvalue'));
        end loop;
      end if;
    exception
      when lock_not_available then
        created := '{}';
        skipped := 'no partitions were added: the ledger is in use by a long transaction or by another call of this function';
      when check_violation or duplicate_table then
        created := '{}';
        skipped := 'no partitions were added: ' || sqlerrm;
    end;
    select count(*) filter (where p.starts_at > p_at), max(p.starts_at)
    into partitions_ahead, open_since
    from payment_ledger_partitions() p;
  end if;

  if created = '{}' and v_unindexed > 0 then
    for v_closed in
      select p.partition_name, p.from_id, p.to_id
      from payment_ledger_partitions() p
      where p.ends_at <= p_at
        and not p.is_searchable
      order by p.ends_at desc
    loop
      continue when exists (
        select
        from payment_outbox_pending q
        where q.outbox_id >= coalesce(v_closed.from_id, '00000000-0000-0000-0000-000000000000')
          and q.outbox_id < v_closed.to_id);
      if pg_relation_size(format('symphony.%I', v_closed.partition_name)::regclass) > v_max_scan then
        skipped := concat_ws('; ', skipped, format('%s has no index by participant: it has more than %s MB', v_closed.partition_name, p_max_scan_mb));
        continue;
      end if;
      begin
        lock table only payment_outbox_attempts in share update exclusive mode nowait;
        execute format(
          'create index if not exists %I on symphony.%I (participant_id, outbox_id) where state in (''DISPATCHED'', ''FAILED'')',
          v_closed.partition_name || '_by_participant', v_closed.partition_name);
        indexed := indexed || v_closed.partition_name::text;
      exception when lock_not_available then
        skipped := concat_ws('; ', skipped, format('%s has no index by participant: it is in use', v_closed.partition_name));
      end;
      exit;
    end loop;
  end if;
end
$$;

comment on function symphony.extend_ledger_at(timestamptz, int) is
  'Makes the partitions of the ledger that a time needs, and indexes one closed partition for searches by participant.';
