-- Says whether the digits of a text form a card number: 12 to 19 digits with a valid Luhn check digit.
--
-- Other characters between the digits do not matter.
-- Locks: nothing. For: mask_personal_data.
create or replace function symphony.is_card_number(p_text text)
  returns boolean
  language sql
  immutable
  parallel safe
  set search_path = pg_catalog, symphony, pg_temp
as $$
  -- From the right every second digit counts twice, as the sum of its digits.
  select count(*) between 12 and 19
     and sum(case when d.place % 2 = 1 then d.digit when d.digit > 4 then d.digit * 2 - 9 else d.digit * 2 end) % 10 = 0
  from (
    select c::int as digit, row_number() over (order by place desc) as place
    from string_to_table(regexp_replace(p_text, '[^0-9]', '', 'g'), null) with ordinality as t (c, place)
  ) d
$$;

comment on function symphony.is_card_number(text) is 'Whether the digits of a text are a card number, by Luhn.';
