-- Opens a new epoch, for an operator who knows that history was lost where the server's identity does not show it.
--
-- A file-level backup that is started without recovery has the same system identifier and timeline as the server it was
-- taken from. From then on every pending payment is inquired about before it is sent, or its rail is held: see
-- on_epoch_change. p_at_least is a lower bound of the counter, for relayers that refuse this server because they have
-- seen a higher one.
-- Locks: epoch and payment_rails in EXCLUSIVE mode: it waits for claims under way, and later claims wait for it.
-- Raises: P7005, 25000 outside READ COMMITTED, 55P03 while a worker leaves its transaction open.
-- For: symphony_operator.
create or replace function symphony.open_epoch(p_actor text, p_reason text, p_at_least bigint default null)
  returns symphony.epoch
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set lock_timeout = '5s'
as $$
begin
  perform check_argument('p_actor', p_actor, 200);
  perform check_argument('p_reason', p_reason, 2000);
  if p_at_least is not null then
    perform check_range('p_at_least', p_at_least, 1, 9000000);
  end if;
  return advance_epoch(p_actor, p_reason, p_at_least);
end
$$;

comment on function symphony.open_epoch(text, text, bigint) is 'Opens a new epoch by hand: everything pending is inquired about before it is sent, or held.';
