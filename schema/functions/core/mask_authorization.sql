-- A text without the credentials of Authorization and Proxy-Authorization, whatever their scheme: a word and what follows it,
-- be it one more word or parameters with commas between them.
--
-- Only for a text whose encodings are all undone: before that the quotes around a parameter may look like anything.
-- The text is one line, as one_line leaves it. What is masked already stays as it is.
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

comment on function symphony.mask_authorization(text) is 'A text without what follows Authorization.';
