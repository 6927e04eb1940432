-- What may be kept of an error that somebody else wrote: one line of at most 2000 characters without personal data or
-- credentials, or null where nothing is left. The one place where this is decided, for every lane.
--
-- What is taken away is listed in mask_credentials, mask_authorization and mask_personal_data, the encodings that are seen
-- through in decode_escapes and one_line: one within the other, eight deep at least. Credentials go before an encoding is undone,
-- since what ends a value can be told only there, and again behind it. It would rather take away too much. What patterns cannot
-- tell, such as a name, stays.
--
-- Only the first 4000 characters are looked at, so that the time it takes has a bound whatever it is given; the last words before
-- the cut go altogether. It works until nothing changes any more, so a clean text stays as it is; what does not come to
-- rest is withheld. How a backslash is read is fixed here, for the functions it calls as well.
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
  v_intake constant int := 4000;
  v_bound  constant int := 2000;
  v_rounds constant int := 12;
  -- What costs the patterns most, counted by a cheap one: each match of theirs takes some 50 µs. No error has so many.
  v_names  constant int := 40;
  v_name   constant text :=
    'passw|passphrase|passcode|secret|token|session[ _.-]?id|(?:api|access|private|signing|encryption|account|shared)[ _.-]?key'
    '|[^a-z0-9](?:pwd|pass|pin|cv[vc]|otp|tan|pan|csrf)|[?&][a-z0-9_.-]*(?:key|sig|credential|auth|code)'
    '|authorization|cookie|bearer|basic|eyJ|-u |--[a-z-]*user';
  v_text   text;
  v_before text := left(p_text, v_intake + 1);
begin
  if p_text is null then
    return null;
  end if;
  for v_round in 1 .. v_rounds loop
    v_text := one_line(v_before);
    if v_text = '' then
      return null;
    end if;
    if char_length(v_before) > v_intake or char_length(v_text) > v_intake then
      -- No secret that is known by more than its beginning has more than 20 words.
      v_text := regexp_replace(left(v_text, v_intake), '(?:[^ ",;&<>{}]+[ ",;&<>{}]+){0,20}[^ ",;&<>{}]*$', '') || '[cut]';
    end if;
    if regexp_count(v_text collate "C", v_name, 1, 'i') > v_names then
      return '[withheld: too many credentials]';
    end if;
    v_text := mask_credentials(v_text);
    v_text := decode_escapes(v_text);
    if v_text = v_before then
      v_text := left(mask_personal_data(mask_authorization(v_text)), v_bound);
    end if;
    if v_text = v_before then
      return v_text;
    end if;
    v_before := v_text;
  end loop;
  return '[withheld: encoded too often]';
end
$$;

comment on function symphony.clean_error_text(text) is 'An error in one bounded line, without personal data and credentials; null where nothing is left.';
