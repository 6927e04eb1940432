-- Gives the ledger an empty first partition, from the lowest id to where the oldest partition begins, if it has none.
--
-- So every outbox id has a partition after the oldest ones were archived. A detached, empty table of an earlier first
-- partition is dropped. Returns the name of the partition that it attached, or null if nothing was missing, or if the table of that
-- name is still to be dropped. Attaching blocks no statement of the lanes.
-- Locks: the ledger in SHARE UPDATE EXCLUSIVE mode; it waits at most 5 s for it. Raises: P7003, 55P03, 25000 outside READ
-- COMMITTED. For: symphony_control.
create or replace function symphony.attach_first_partition()
  returns text
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set lock_timeout = '5s'
as $$
declare
  c_name constant text := 'payment_outbox_attempts_from_start';
  v_from uuid;
begin
  perform check_isolation();
  lock table only payment_outbox_attempts in share update exclusive mode;
  select p.from_id into v_from from payment_ledger_partitions() p order by p.from_id nulls first limit 1;
  if v_from is null then
    return null;
  end if;
  if to_regclass(format('symphony.%I', c_name)) is not null then
    if exists (select from payment_ledger_archives r where r.partition_oid = to_regclass(format('symphony.%I', c_name))) then
      return null;
    elsif (select d.row_count from ledger_partition_digest(c_name) d) > 0 then
      raise exception '% is detached, and has rows that were not archived', c_name
        using errcode = 'P7003',
              hint = 'Attach it again as the owner: alter table … attach partition … for values from (minvalue) to ….';
    end if;
    execute format('drop table symphony.%I', c_name);
  end if;
  perform create_ledger_partition(c_name);
  execute format('alter table symphony.payment_outbox_attempts attach partition symphony.%I for values from (minvalue) to (%L)', c_name, v_from);
  return c_name;
end
$$;

comment on function symphony.attach_first_partition() is
  'Gives the ledger an empty first partition in place of those that were archived.';
