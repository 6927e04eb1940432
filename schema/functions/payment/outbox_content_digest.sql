-- Computes the SHA-256 by which an idempotency key recognises its payment: of key, instruction, participant, rail and
-- payload.
--
-- Two payments under one key must never have the same digest. So the hash is cryptographic and its input unambiguous:
-- the length precedes each name, and the payload comes last. Key and instruction are included, so that equal payments
-- of different keys have different digests. The payload is hashed as jsonb prints it. Equal numbers of different scale
-- (1.0 and 1.00) differ here, and the enqueue functions then compare the content.
--
-- This is the definition. The enqueue functions write it out, because a call per row costs as much as an index entry;
-- a test compares what they store with it.
-- Locks: nothing. For: the test of the enqueue functions.
create or replace function symphony.outbox_content_digest(
  p_idempotency_key text,
  p_instruction_id  text,
  p_participant_id  text,
  p_rail_type       text,
  p_payload         jsonb)
  returns bytea
  language plpgsql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
begin
  return sha256(convert_to(
    concat(char_length(p_idempotency_key), ':', p_idempotency_key, char_length(p_instruction_id), ':', p_instruction_id,
           char_length(p_participant_id), ':', p_participant_id, char_length(p_rail_type), ':', p_rail_type, p_payload::text),
    'UTF8'));
end
$$;

comment on function symphony.outbox_content_digest(text, text, text, text, jsonb) is
  'SHA-256 of what an idempotency key stands for: key, instruction, participant, rail and payload.';
