-- Creates a table that can become a partition of the ledger, with the indexes and triggers of one.
--
-- A statement on a partition does not fire the statement-level triggers of the ledger, and TRUNCATE fires no others: so
-- the table has its own. PostgreSQL clones the row-level trigger when the table is attached; that one decides whether an
-- UPDATE of the payload is an erasure, and the statement-level one refuses an UPDATE of each other column. The indexes have the names of
-- the ledger's with that of the partition in front, because an error of PostgreSQL names the partition's index.
-- DDL has no parameters: this function and extend_ledger_at are the only ones that assemble statements.
-- Locks: the new table. Raises: 42P07 if there is a table of that name. For: extend_ledger_at.
create or replace function symphony.create_ledger_partition(p_name text)
  returns void
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  execute format(
    'create table symphony.%I (like symphony.payment_outbox_attempts including defaults including constraints including storage,
       constraint %I primary key (outbox_id, attempt_no))',
    p_name, p_name || '_pkey');
  execute format(
    'create unique index %I on symphony.%I (outbox_id) where state in (''DISPATCHED'', ''FAILED'')',
    p_name || '_one_terminal_per_outbox', p_name);
  execute format(
    'create index %I on symphony.%I (completed_at, outbox_id) include (rail_type, error_code) where state = ''FAILED''',
    p_name || '_failures', p_name);
  -- LIKE copies neither.
  execute format('alter table symphony.%I alter column payload set statistics 0', p_name);
  execute format(
    'create trigger ledger_is_append_only before delete or truncate or update of %s on symphony.%I
       for each statement execute function symphony.refuse_change(''the ledger is append-only'')',
    (select string_agg(quote_ident(a.attname), ', ' order by a.attnum)
     from pg_attribute a
     where a.attrelid = 'symphony.payment_outbox_attempts'::regclass
       and a.attnum > 0
       and not a.attisdropped
       and a.attname <> 'payload'), p_name);
  execute format('alter table symphony.%I enable always trigger ledger_is_append_only', p_name);
  execute format('comment on table symphony.%I is ''A partition of the ledger, by time of enqueue.''', p_name);
end
$$;

comment on function symphony.create_ledger_partition(text) is 'Creates a table with the indexes and triggers of a partition of the ledger.';
