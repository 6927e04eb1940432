-- Makes the first partitions of the ledger, or those that are missing by now. Applied after the grants.
do $partitions$
declare
  v_skipped text;
begin
  select e.skipped into v_skipped from symphony.extend_payment_ledger() e where e.partitions_ahead = 0;
  if v_skipped is not null then
    raise exception '%', v_skipped using errcode = '55P03', hint = 'End the transaction that uses the ledger, then run this again.';
  end if;
end
$partitions$;
