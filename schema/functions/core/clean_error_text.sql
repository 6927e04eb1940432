-- What may be kept of an error that somebody else wrote: one line of at most 2000 characters without personal data or
-- credentials, or null where nothing is left.
--
-- Passwords in URLs and settings, bearer tokens, e-mail addresses, IBANs and runs of digits as long as a card number
-- are replaced by a word in brackets. It would rather take away too much. Only the first 4000 characters are looked at,
-- so that the time it takes has a bound whatever it is given; what is cut through there goes altogether.
-- The one place where this is decided, for every lane.
-- Locks: nothing. For: the other functions.
create or replace function symphony.clean_error_text(p_text text)
  returns text
  language plpgsql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_intake constant int := 4000;
  v_bound  constant int := 2000;
  -- The same everywhere, whatever the database sorts by.
  v_text   text collate "C" := left(p_text, v_intake);
begin
  if char_length(p_text) > v_intake then
    v_text := regexp_replace(v_text, '[^[:space:]]*[0-9 -]*$', '') || '[cut]';
  end if;
  -- Control characters, and those that turn the direction of writing or break a line without being one.
  v_text := regexp_replace(v_text, '[\u0001-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069]+', ' ', 'g');
  v_text := regexp_replace(v_text, '://[^[:space:]]*@', '://[credentials]@', 'g');
  v_text := regexp_replace(v_text, '\m(bearer)[[:space:]]+[^[:space:],;"'']+', '\1 [token]', 'gi');
  v_text := regexp_replace(v_text, '\m(basic)[[:space:]]+[a-z0-9+/]{8,}=*', '\1 [token]', 'gi');
  v_text := regexp_replace(v_text, '\meyJ[a-zA-Z0-9_=-]+\.[a-zA-Z0-9_=.-]*', '[token]', 'g');
  v_text := regexp_replace(
    v_text, '(password|passwd|passphrase|pwd|secret|token|api[_-]?key)("?[[:space:]]*[=:][[:space:]]*)("[^"]*"?|''[^'']*''?|[^[:space:],;&]+)',
    '\1\2[secret]', 'gi');
  v_text := regexp_replace(v_text, '[^][[:space:]<>()@,;:"''=]+@[^][[:space:]<>()@,;:"''=]+', '[e-mail]', 'g');
  v_text := regexp_replace(v_text, '\m[A-Z]{2}[0-9]{2}([ -]?[A-Z0-9]{4}){2,7}([ -]?[A-Z0-9]{1,4})?\M', '[iban]', 'g');
  v_text := regexp_replace(v_text, '\m[a-z]{2}[0-9]{2}[a-z0-9]{11,30}\M', '[iban]', 'gi');
  v_text := regexp_replace(v_text, '[0-9]([ -]?[0-9]){12,}', '[number]', 'g');
  return nullif(left(btrim(v_text), v_bound), '');
end
$$;

comment on function symphony.clean_error_text(text) is 'An error in one bounded line, without personal data and credentials; null where nothing is left.';
