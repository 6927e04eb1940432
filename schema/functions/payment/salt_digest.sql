-- Returns the digest under which an erased payment is known: the SHA-256 of the salt and of outbox_content_digest.
-- Without a salt, before the erasure, it is the digest as given.
--
-- Payloads can be guessed: an amount and an account have few values. Who has a plain digest can try them all. With a
-- salt of 32 random bytes that stays in payment_payload_erasures, they cannot; a replay is still recognised, because the
-- database salts its digest too.
-- Locks: nothing. For: erase_payment_payload, the triggers that allow an erasure, and the enqueue functions.
create or replace function symphony.salt_digest(p_digest bytea, p_salt bytea)
  returns bytea
  language plpgsql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  return case when p_salt is null then p_digest else sha256(p_salt || p_digest) end;
end
$$;

comment on function symphony.salt_digest(bytea, bytea) is 'SHA-256 of a salt and a digest; the digest itself without a salt.';
