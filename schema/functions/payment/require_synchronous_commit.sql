-- Raises synchronous_commit from off to local for this transaction, so that its commit survives a crash.
--
-- If a lease or an outcome were lost after a worker has acted on it, the payment would be sent again without a trace
-- of the first dispatch. Every other value is left as it is.
-- Locks: nothing. For: claim_outbox_batch and complete_outbox_batch.
create or replace function symphony.require_synchronous_commit()
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

comment on function symphony.require_synchronous_commit() is
  'Raises synchronous_commit from off to local for this transaction.';
