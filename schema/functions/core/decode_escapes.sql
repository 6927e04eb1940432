-- Decodes one level of escapes in a text.
--
-- It knows percent-encoding of UTF-8 (%40, overlong forms as well), the escapes of JSON and of programming languages
-- (\u0040, surrogate pairs, \u{40}, \x40, \n, \", \\) and HTML references (&#64;, &#x40; and the common names).
-- Locks: nothing. For: clean_error_text.
create or replace function symphony.decode_escapes(p_text text)
  returns text
  language plpgsql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_escape constant text :=
    '%[0-7][0-9a-fA-F]|%[cdCD][0-9a-fA-F]%[89abAB][0-9a-fA-F]|%[eE][0-9a-fA-F](?:%[89abAB][0-9a-fA-F]){2}'
    '|%[fF][0-4](?:%[89abAB][0-9a-fA-F]){3}'
    '|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\u\{[0-9a-fA-F]{1,6}\}|\\x[0-9a-fA-F]{2}'
    '|\\[nrt"''/\\]'
    '|&#[0-9]{1,7};?|&#[xX][0-9a-fA-F]{1,6};?'
    '|&(?:quot|apos|amp|lt|gt|nbsp|commat|equals|colon|sol|plus|period|lowbar|percnt|Tab|NewLine);';
begin
  if p_text !~ '[%\\&]' then
    return p_text;
  end if;
  return (
    select string_agg(
             -- The escapes that nested encodings consist of, without a function call.
             case coalesce(m.found[1], '')
               when '' then m.found[2]
               when '%25' then '%'
               when '\\' then '\'
               when '&amp;' then '&'
               else decode_escape(m.found[1])
             end, '' order by m.place)
    from regexp_matches(p_text collate "C", '(' || v_escape || ')|([^%\\&]+|.)', 'g') with ordinality as m (found, place));
end
$$;

comment on function symphony.decode_escapes(text) is
  'A text with one level of percent-encoding, backslash escapes and HTML references decoded.';
