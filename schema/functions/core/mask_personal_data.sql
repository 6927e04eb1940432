-- Masks personal data: replaces whatever identifies a person or an account by a word in brackets.
--
-- It knows e-mail addresses; IBANs by their shape, with or without groups; phone numbers that begin with +, 00 or an
-- area code in parentheses, or that follow a word such as phone; numbers of 13 and more digits, and of 12 digits with
-- a valid Luhn check digit. A separator with blanks may stand between two digits. UUIDs, ids of 32 hexadecimal digits,
-- times and IPv4 addresses stay.
--
-- The text is one line, as normalize_error_text returns it. Masked parts stay as they are.
-- Locks: nothing. For: clean_error_text.
create or replace function symphony.mask_personal_data(p_text text)
  returns text
  language plpgsql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  -- The digits of what is put aside, meanwhile: no line has these characters.
  v_aside constant text := E'\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17';
  -- Before and behind what is looked at more closely.
  v_open  constant text := E'\x01';
  v_close constant text := E'\x02';
  -- What an address is made of, before and behind its @.
  v_word  constant text := '[^][ <>()@,;:"''=]';
  v_host  constant text := '(?:[^] !-,/:-@[\\^`{-~]+|\[[^][ ]*\])';
  -- A time of day, with its zone.
  v_time  constant text := '[0-2]?[0-9]:[0-5][0-9](?::[0-6][0-9](?:\.[0-9]{1,9}|,[0-9]{3})?)?(?:z|[+-][01][0-9](?::?[0-5][0-9])?)?';
  -- What may stand between two digits, of a phone number, and between two groups of an IBAN.
  v_mark  constant text := '(?: ?[-+_/\u2010-\u2015\u2212]? ?|\.)';
  v_dial  constant text := '[ ()./\u2010-\u2015-]{0,3}';
  v_gap   constant text := '[- +_/.\u2010-\u2015\u2212]?';
  v_text  text collate "C" := p_text;
begin
  v_text := regexp_replace(
    v_text,
    '(?:"[^"@]{1,64}"|' || v_word || '+(?:''' || v_word || '+)*(?:\+(?:' || v_word || '|=)*)?)@' || v_host, '[e-mail]', 'g');

  v_text := regexp_replace(
    v_text,
    '(?<![0-9a-z])(?=[0-9-]{0,35}[a-f])(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32})(?![0-9a-z])'
    '|(?<![0-9])(?:(?:19|20)[0-9]{2}-[01][0-9]-[0-3][0-9]|[0-3]?[0-9][./][01]?[0-9][./](?:19|20)[0-9]{2})(?:[t ]' || v_time || ')?(?![0-9])'
    '|(?<![0-9:])' || v_time || '(?![0-9:])'
    '|(?<![0-9.])(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.){3}(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(?!\.?[0-9])',
    v_open || '\&' || v_close, 'gi');
  v_text := (
    select string_agg(
             case when strpos(t.piece, v_close) = 0 then t.piece
                  else translate(split_part(t.piece, v_close, 1), '0123456789', v_aside) || split_part(t.piece, v_close, 2) end,
             '' order by t.place)
    from string_to_table(v_text, v_open) with ordinality as t (piece, place));

  v_text := regexp_replace(
    v_text, '(?<![A-Z])(?:IBAN)?[A-Z]{2}[0-9]{2}(?:' || v_gap || '[A-Z0-9]{4}){2,7}(?:' || v_gap || '[A-Z0-9]{1,4})?', '[iban]', 'g');
  v_text := regexp_replace(
    v_text,
    '(?<![a-z0-9])[a-z]{2}[0-9]{2}(?:[a-z0-9]{11,30}(?![a-z0-9])'
    '|(?:' || v_gap || '[a-z0-9]{4}){0,2}(?:' || v_gap || '[0-9]{4}){2}(?:' || v_gap || '[a-z0-9]{4}){0,5}' || v_gap || '[a-z0-9]{1,4})',
    '[iban]', 'gi');

  v_text := regexp_replace(
    v_text,
    '(?:\+ ?[1-9]|(?<![0-9]\.?)00? ?[1-9][0-9])(?:' || v_dial || '[0-9]){7,}'
    '|\([0-9]{2,5}\)(?:' || v_dial || '[0-9]){6,}|(?<![0-9])[2-9][0-9]{2}[-.][0-9]{3}[-.][0-9]{4}(?![0-9])', '[phone]', 'g');
  v_text := regexp_replace(
    v_text,
    '((?<![a-z])(?:tel|telephone|telefon|phone|mobile|msisdn|fax)[a-z_.-]{0,20}(?: number| no\.?)?["'']? ?[:=]? ?["'']?)'
    '[0-9(](?:' || v_dial || '[0-9]){5,}',
    '\1[phone]', 'gi');

  v_text := regexp_replace(v_text, '[0-9](?:' || v_mark || '[0-9]){12,}', '[number]', 'g');
  v_text := regexp_replace(v_text, '[0-9](?:' || v_mark || '[0-9]){11}', v_open || '\&' || v_close, 'g');
  v_text := (
    select string_agg(
             case when strpos(t.piece, v_close) = 0 then t.piece
                  when is_card_number(split_part(t.piece, v_close, 1)) then '[number]' || split_part(t.piece, v_close, 2)
                  else replace(t.piece, v_close, '') end,
             '' order by t.place)
    from string_to_table(v_text, v_open) with ordinality as t (piece, place));

  return translate(v_text, v_aside, '0123456789');
end
$$;

comment on function symphony.mask_personal_data(text) is
  'A text with e-mail addresses, IBANs, phone and card numbers replaced by words in brackets.';
