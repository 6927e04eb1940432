-- Decodes one escape into its character, or returns the escape itself if it stands for none.
--
-- A control character becomes a blank. A database that is not UTF8 decodes ASCII only.
-- Locks: nothing. For: decode_escapes, which matches the escapes.
create or replace function symphony.decode_escape(p_escape text)
  returns text
  language plpgsql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  v_mark  constant text := left(p_escape, 1);
  v_kind  constant text := substr(p_escape, 2, 1);
  -- Hexadecimal digits, where the escape is made of them.
  v_hex   text;
  v_bytes bytea;
  v_code  int;
begin
  if v_mark = '%' then
    v_bytes := decode(replace(p_escape, '%', ''), 'hex');
    -- Of the first byte the bits that say how many follow are left out, of the others the first two.
    v_code := get_byte(v_bytes, 0) & (array[127, 31, 15, 7])[length(v_bytes)];
    for v_place in 1 .. length(v_bytes) - 1 loop
      v_code := (v_code << 6) | (get_byte(v_bytes, v_place) & 63);
    end loop;
  elsif v_mark = '\' and v_kind in ('u', 'x') then
    v_hex := translate(substr(p_escape, 3), '\u{}', '');
    v_code := ('x' || lpad(right(v_hex, 6), 8, '0'))::bit(32)::int;
    if length(v_hex) = 8 then
      -- A pair of surrogates, ten bits each.
      v_code := 65536 + ((('x' || lpad(left(v_hex, 4), 8, '0'))::bit(32)::int & 1023) << 10) + (v_code & 1023);
    end if;
  elsif v_mark = '\' then
    return case when v_kind in ('n', 'r', 't') then ' ' else v_kind end;
  elsif p_escape ~ '^&#[xX]' then
    v_code := ('x' || lpad(rtrim(substr(p_escape, 4), ';'), 8, '0'))::bit(32)::int;
  elsif p_escape ~ '^&#' then
    v_code := rtrim(substr(p_escape, 3), ';')::int;
  else
    return case lower(p_escape)
      when '&quot;' then '"'
      when '&apos;' then ''''
      when '&amp;' then '&'
      when '&lt;' then '<'
      when '&gt;' then '>'
      when '&commat;' then '@'
      when '&equals;' then '='
      when '&colon;' then ':'
      when '&sol;' then '/'
      when '&plus;' then '+'
      when '&period;' then '.'
      when '&lowbar;' then '_'
      when '&percnt;' then '%'
      else ' '
    end;
  end if;

  return case
    when v_code < 32 or v_code between 127 and 159 then ' '
    when v_code < 127 then chr(v_code)
    when getdatabaseencoding() <> 'UTF8' or v_code between 55296 and 57343 or v_code > 1114111 then p_escape
    else chr(v_code)
  end;
end
$$;

comment on function symphony.decode_escape(text) is 'The character that one escape stands for, or the escape itself.';
