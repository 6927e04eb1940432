-- The SHA-256 by which an idempotency key recognises its payment again: of the key, its instruction, participant, rail and payload.
--
-- Two payments under one key must never look alike, so the hash is cryptographic and its input unambiguous: each name is preceded by its length,
-- and the payload comes last. Key and instruction are part of it so that equal payments of different keys have different digests. A payload is hashed as
-- jsonb prints it: equal numbers of another scale (1.0 and 1.00) differ here, and the enqueue functions then compare the content.
-- Locks: nothing. For: the enqueue functions.
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
