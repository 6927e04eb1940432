-- Revokes a declaration that two endpoints of a rail are the same bank, and logs the operation with actor and reason.
--
-- The pair may be given in either order. Two endpoints can stay the same through other declarations: the hint of the refusal
-- and the view payment_same_endpoints show which pairs were declared.
-- Locks: payment_endpoint_aliases against other declarations.
-- Raises: P7003 if this pair was not declared, P7005, 25000 outside READ COMMITTED, 55P03 after 5 s behind another
-- declaration. For: symphony_operator.
create or replace function symphony.revoke_same_endpoint(
  p_rail_type     text,
  p_endpoint      text,
  p_same_as       text,
  p_actor         text,
  p_reason        text,
  out operation_id uuid,
  out revoked_at   timestamptz)
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
  lock table payment_endpoint_aliases in share row exclusive mode;
  delete from payment_endpoint_aliases a
  where a.rail_type = p_rail_type
    and (a.endpoint, a.same_as) in ((p_endpoint, p_same_as), (p_same_as, p_endpoint));
  if not found then
    raise exception '% and % were not declared the same endpoint of rail %', p_endpoint, p_same_as, p_rail_type
      using errcode = 'P7003',
            hint = 'symphony.payment_same_endpoints lists what was declared.';
  end if;

  insert into payment_outbox_operations as o (operation_id, operation, rail_type, policy_before, actor, reason)
  values (uuidv7(), 'REVOKE_SAME_ENDPOINT', p_rail_type, jsonb_build_object('endpoint', p_endpoint, 'same_as', p_same_as), p_actor, p_reason)
  returning o.operation_id, o.created_at
  into operation_id, revoked_at;
end
$$;

comment on function symphony.revoke_same_endpoint(text, text, text, text, text) is
  'Revokes a declaration that two endpoints of a rail are the same bank.';
