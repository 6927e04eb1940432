-- Masks the credentials after Authorization and Proxy-Authorization, whatever their scheme.
--
-- The credentials are a word and what follows it: one more word, or parameters separated by commas. Call it only for a
-- text without encodings: an encoded quote around a parameter is not recognised. The text is one line, as
-- normalize_error_text returns it. Masked parts stay as they are.
-- Locks: nothing. For: clean_error_text.
create or replace function symphony.mask_authorization(p_text text)
  returns text
  language plpgsql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_parameter constant text := '(?:"[^"]*"?|[^ ,"]+)';
begin
  return regexp_replace(
    p_text collate "C",
    '(authorization["'']? ?[:=] ?)(?!\[(?:credentials|cookies|hidden|pem)\])["''[(]?[^ ,;"'']+'
    '(?: (?:[a-z0-9_-]+=)?' || v_parameter || ')?(?:, ?[a-z0-9_-]+=' || v_parameter || ')*',
    '\1[credentials]', 'gi');
end
$$;

comment on function symphony.mask_authorization(text) is 'A text without the credentials that follow Authorization.';
