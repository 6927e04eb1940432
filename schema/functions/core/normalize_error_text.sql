-- Normalizes a text to one line of visible characters, so that the masking patterns see what a reader sees.
--
-- Fullwidth and other variants of letters and digits become plain ones (NFKC; Arabic and Devanagari digits too).
-- Zero-width characters and those that change the writing direction are removed; control characters and white space
-- become one blank. In a database that is not UTF8 every character outside ASCII becomes a question mark.
-- Locks: nothing. For: clean_error_text.
create or replace function symphony.normalize_error_text(p_text text)
  returns text
  language plpgsql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_text   text collate "C" := p_text;
  v_digits text;
begin
  if getdatabaseencoding() <> 'UTF8' then
    v_text := regexp_replace(v_text, '[^\u0001-\u007f]', '?', 'g');
  elsif octet_length(v_text) > char_length(v_text) then
    v_digits := (select string_agg(chr(z.zero + d.digit), '' order by z.zero, d.digit)
                 from unnest(array[1632, 1776, 2406]) as z (zero)
                 cross join generate_series(0, 9) as d (digit));
    v_text := translate(normalize(v_text, nfkc), v_digits, repeat('0123456789', 3));
    v_text := regexp_replace(
      v_text,
      '[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff'
      '\ufff0-\ufffb\U000e0000-\U000e0fff]+', '', 'g');
    v_text := regexp_replace(v_text, '[\u0080-\u009f\u2028\u2029]+', ' ', 'g');
  end if;
  return btrim(regexp_replace(v_text, '[\u0001-\u0020\u007f]+', ' ', 'g'));
end
$$;

comment on function symphony.normalize_error_text(text) is
  'A text in one line, in plain forms of its characters and without invisible ones.';
