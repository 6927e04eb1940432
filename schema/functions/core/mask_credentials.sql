-- Masks credentials: replaces each secret that its position identifies by a word in brackets.
--
-- It knows, in this order: PEM blocks; user and password in a URL; Authorization in quotes (mask_authorization does
-- the rest); Cookie and Set-Cookie; bearer and basic tokens; JSON web tokens; keys with a known vendor prefix; values
-- of names such as password, secret, token, api_key or pin, written as an XML element, an option --key value or -u
-- user:value, SQL's PASSWORD 'value', key=value, key: value, JSON or a query string.
--
-- A value is a quoted string with its escapes, a number or an IBAN in groups, an object or an array; otherwise it ends
-- at the next blank, comma, semicolon or ampersand. Masked parts stay as they are. The text is one line, as
-- normalize_error_text returns it.
-- Locks: nothing. For: clean_error_text.
create or replace function symphony.mask_credentials(p_text text)
  returns text
  language plpgsql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
declare
  -- Short names count where no letter or digit stands before them, common ones in a query string.
  v_key    constant text :=
    '(?:(?:passw(?:or)?d|passwort|passphrase|passcode|secret|token|session[ _.-]?id'
    '|(?:api|access|private|signing|encryption|account|shared)[ _.-]?key|(?<![a-z0-9])(?:pwd|pass|pin|cvv2?|cvc2?|otp|tan|pan|csrf))'
    '(?:[_.-][a-z0-9_.-]{0,40}|s|id|hash|value|key)?|[?&][a-z0-9_.-]{0,40}(?:key|sig|signature|credential|auth|code))';
  v_quoted constant text := '"(?:[^"\\]|\\.)*"?|''(?:[^''\\]|\\+.|'''')*''?';
  -- Between a name and its value.
  v_is     constant text := '(?:["'')]{0,2} ?(?:=>|[:=]=?) ?|\]=)';
  -- A number in groups.
  v_number constant text :=
    '[^ ,;&"''a-z0-9]{0,3}[0-9][0-9()./+_\u2010-\u2015\u2212-]*(?: [-/+]? ?[(]?[0-9][0-9()./+_\u2010-\u2015\u2212-]*)*';
  -- A value: in quotes, a number, an IBAN in groups, an object or an array with at most one more within, a word. Quotes that are still
  -- escaped wait for the next round, and Authorization for its own function. With a name at its end a word goes on to the number behind.
  v_value  constant text :=
    '(?:' || v_quoted || '|' || v_number || '|[a-z]{2}[0-9]{2}(?: [a-z0-9]{4}){2,7}(?: [a-z0-9]{1,4})?'
    '|\{(?:[^{}]|\{[^{}]*\})*\}?|\[(?:[^][]|\[[^][]*\])*\]?'
    '|(?!(?:[^ ,;&]*[:=]>? ?)?(?:\\+["'']|&(?:quot|apos|gt|#))|[^ ]{0,9}authorization)[^ ,;&"''=>][^ ,;&]*(?:(?<=[:=]) ?' || v_number || ')?)';
  v_text   text collate "C" := p_text;
begin
  v_text := regexp_replace(
    v_text, '-----BEGIN [A-Z0-9 ]+-----(?:[^-]|-{1,4}[^-])*(?:-----END [A-Z0-9 ]+-----)?', '[pem]', 'g');
  v_text := regexp_replace(v_text, '://[^ ]*@', '://[credentials]@', 'g');
  v_text := regexp_replace(v_text, '(authorization["'']? ?[:=] ?)(?:' || v_quoted || ')', '\1[credentials]', 'gi');
  v_text := regexp_replace(v_text, '(cookie2?["'']? ?[:=] ?)[^ ;]+(?:; ?[^ ;]+)*', '\1[cookies]', 'gi');
  -- Words that describe a token are not masked.
  v_text := regexp_replace(
    v_text,
    '\m(bearer )(?!(?:tokens?|auth|authentication|authorization|scheme|is|was|not|missing|required|expired|invalid)(?:$|[ ,;:.)]))[^ ,;"'']+',
    '\1[hidden]', 'gi');
  v_text := regexp_replace(
    v_text, '\m([Bb]asic |BASIC )(?!realm=)(?:[A-Za-z0-9+/_-]+[A-Z0-9+/=][A-Za-z0-9+/_=-]*|[A-Za-z0-9+/_=-]{16,})', '\1[hidden]', 'g');
  v_text := regexp_replace(
    v_text,
    'eyJ[A-Za-z0-9_=-]+\.[A-Za-z0-9_=.-]*'
    '|(?<![A-Za-z0-9])(?:(?:AKIA|ASIA)[0-9A-Z]{12,}'
    '|(?:[spr]k_(?:live|test)_|whsec_|sk-|gh[opsur]_|github_pat_|glpat-|xox[a-z]-|AIza|ya29\.|hvs\.|npm_|pypi-|dop_v1_|SG\.)[A-Za-z0-9_.=/+-]{8,})',
    '[hidden]', 'g');

  v_text := regexp_replace(
    v_text,
    '(<[a-z0-9_.:-]{0,40}' || v_key || '[a-z0-9_.:-]{0,40}(?: [^<>]*)?>)(?:<!\[CDATA\[[^]]*\]\]>|[^<]+)',
    '\1[hidden]', 'gi');
  v_text := regexp_replace(
    v_text,
    '((?:password|identified by) )''(?:[^''\\]|\\+.|'''')*''?|(--[a-z0-9-]{0,40}(?:password|passwd|secret|token|key) )[^ ]+'
    '|((?<![^ ])-u |--(?:proxy-)?user[ =])[^ ]+:[^ ]*',
    '\1\2\3[hidden]', 'gi');
  return regexp_replace(
    v_text, '(' || v_key || v_is || '(?!\[hidden\](?:$|[ ,;&])))(?:[^ ,;&]{0,60}' || v_key || v_is || ')*' || v_value, '\1[hidden]', 'gi');
end
$$;

comment on function symphony.mask_credentials(text) is 'A text with passwords, tokens, keys and cookies replaced by words in brackets.';
