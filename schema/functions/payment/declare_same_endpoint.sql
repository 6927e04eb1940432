-- Declares two endpoints of a rail to be the same bank, and logs the operation with actor and reason.
--
-- For a bank whose address has moved with its memory of idempotency keys: workers at the new endpoint then inquire about
-- payments that went to the old one, instead of stopping them. Two banks that are declared the same can both pay one payment.
-- Locks: payment_endpoint_aliases against other declarations. Workers that read it do not wait.
-- Raises: P7003 if they are the same already, P7005, P7006, 25000 outside READ COMMITTED, 55P03 after 5 s behind another
-- declaration. For: symphony_operator.
create or replace function symphony.declare_same_endpoint(
  p_rail_type     text,
  p_endpoint      text,
  p_same_as       text,
  p_actor         text,
  p_reason        text,
  out operation_id uuid,
  out declared_at  timestamptz)
  language plpgsql
  security definer
  set search_path = pg_catalog, symphony, pg_temp
  set lock_timeout = '5s'
as $$
#variable_conflict use_column
begin
  perform check_argument('p_rail_type', p_rail_type, 200);
  perform check_argument('p_endpoint', p_endpoint, 200);
  perform check_argument('p_same_as', p_same_as, 200);
  perform check_argument('p_actor', p_actor, 200);
  perform check_argument('p_reason', p_reason, 2000);
  perform check_isolation();
  perform registered_rail(p_rail_type);
  lock table payment_endpoint_aliases in share row exclusive mode;
  if is_same_endpoint(p_rail_type, p_endpoint, p_same_as) then
    raise exception '% and % are the same endpoint of rail % already', p_endpoint, p_same_as, p_rail_type
      using errcode = 'P7003',
            hint = 'symphony.payment_same_endpoints lists what was declared.';
  end if;

  insert into payment_endpoint_aliases (rail_type, endpoint, same_as, declared_by, reason)
  values (p_rail_type, p_endpoint, p_same_as, p_actor, p_reason);
  insert into payment_outbox_operations as o (operation_id, operation, rail_type, policy_after, actor, reason)
  values (uuidv7(), 'DECLARE_SAME_ENDPOINT', p_rail_type, jsonb_build_object('endpoint', p_endpoint, 'same_as', p_same_as), p_actor, p_reason)
  returning o.operation_id, o.created_at
  into operation_id, declared_at;
end
$$;

comment on function symphony.declare_same_endpoint(text, text, text, text, text) is
  'Declares two endpoints of a rail to be the same bank, for an address that has moved.';
