-- Makes the commit of this transaction survive a crash, whatever the session was set to.
--
-- A lease or an outcome that is forgotten after it was acted upon is a payment that goes out again with
-- nobody knowing of the first. Any other setting than off is left as it is.
-- Locks: nothing. For: claim_outbox_batch and complete_outbox_batch.
create or replace function symphony.insist_on_durability()
  returns void
  language plpgsql
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  if current_setting('synchronous_commit') = 'off' then
    perform set_config('synchronous_commit', 'local', true);
  end if;
end
$$;

comment on function symphony.insist_on_durability() is 'Raises synchronous_commit from off to local for this transaction.';
