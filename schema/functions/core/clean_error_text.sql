-- Removes personal data and credentials from an error text, and returns one line of at most 2000 characters; null if
-- nothing is left.
--
-- Every lane stores error texts through this function only. mask_credentials, mask_authorization and
-- mask_personal_data list what is removed; decode_escapes and normalize_error_text list the encodings that are
-- decoded, nested at least eight deep. Credentials are masked before a decoding, because only then the end of a value
-- is visible, and again after it. When in doubt it removes too much. Patterns cannot recognise everything: a name, for
-- example, stays.
--
-- It reads the first 4000 characters only, so its run time is bounded for any input; the last words before the cut are
-- removed. It repeats until the text no longer changes, so a clean text stays as it is. A text that keeps changing is
-- withheld. It pins standard_conforming_strings, for the functions it calls as well.
-- Locks: nothing. For: the other functions.
create or replace function symphony.clean_error_text(p_text text)
  returns text
  language plpgsql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
  set standard_conforming_strings = on
as $$
declare
  v_max_input constant int := 4000;
  v_max_output  constant int := 2000;
  v_max_rounds constant int := 12;
  -- A cheap pattern counts what is expensive for the others: each of their matches takes about 50 µs.
  v_max_names  constant int := 40;
  v_names   constant text :=
    'passw|passphrase|passcode|secret|token|session[ _.-]?id|(?:api|access|private|signing|encryption|account|shared)[ _.-]?key'
    '|[^a-z0-9](?:pwd|pass|pin|cv[vc]|otp|tan|pan|csrf)|[?&][a-z0-9_.-]*(?:key|sig|credential|auth|code)'
    '|authorization|cookie|bearer|basic|eyJ|-u |--[a-z-]*user';
  v_text   text;
  v_before text := left(p_text, v_max_input + 1);
begin
  if p_text is null then
    return null;
  end if;
  for v_round in 1 .. v_max_rounds loop
    v_text := normalize_error_text(v_before);
    if v_text = '' then
      return null;
    end if;
    if char_length(v_before) > v_max_input or char_length(v_text) > v_max_input then
      -- No secret that the patterns know has more than 20 words.
      v_text := regexp_replace(left(v_text, v_max_input), '(?:[^ ",;&<>{}]+[ ",;&<>{}]+){0,20}[^ ",;&<>{}]*$', '') || '[cut]';
    end if;
    if regexp_count(v_text collate "C", v_names, 1, 'i') > v_max_names then
      return '[withheld: too many credentials]';
    end if;
    v_text := mask_credentials(v_text);
    v_text := decode_escapes(v_text);
    if v_text = v_before then
      v_text := left(mask_personal_data(mask_authorization(v_text)), v_max_output);
    end if;
    if v_text = v_before then
      return v_text;
    end if;
    v_before := v_text;
  end loop;
  return '[withheld: encoded too often]';
end
$$;

comment on function symphony.clean_error_text(text) is
  'An error text in one bounded line, without personal data and credentials; null if nothing is left.';
