//! `symphony recover reconcile`: compares what a bank says that it has executed with what the database knows.

use std::path::PathBuf;

use csv::{ReaderBuilder, StringRecord};
use jiff::{SignedDuration, Timestamp};
use symphony_db::payment::reader;
use symphony_db::payment::reconciliation::{self, BankExport, Discrepancy, Period};
use tokio_postgres::Client;

use super::super::audit_context::AuditContext;
use super::MAX_ORPHANS;
use crate::output::print_note;
use crate::{failure::Failure, output::OutputFormat, table::Table, values};

/// The largest export that is read.
const MAX_BYTES: u64 = 64 * 1024 * 1024;
/// The most payments of an export: the limit of the database function.
const MAX_ROWS: usize = 100_000;

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The bank's export: a CSV file with a header line, at most 64 MiB and 100,000 payments
    #[arg(long, value_name = "FILE")]
    bank_export: PathBuf,
    /// The rail whose payments the export has
    #[arg(long)]
    rail: String,
    /// The export has every payment from this date or time on; the time of its first payment if it is left out
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    from: Option<Timestamp>,
    /// The export has every payment before this; the time of its last payment if it is left out
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    to: Option<Timestamp>,
    /// The column of the idempotency key
    #[arg(long, value_name = "COLUMN", default_value = "idempotency_key")]
    key_column: String,
    /// The column of the bank's reference [default: reference, if it is there]
    #[arg(long, value_name = "COLUMN")]
    reference_column: Option<String>,
    /// The column of the amount, such as 10.50 [default: amount, if it is there]
    #[arg(long, value_name = "COLUMN")]
    amount_column: Option<String>,
    /// The column of the currency [default: currency, if it is there]
    #[arg(long, value_name = "COLUMN")]
    currency_column: Option<String>,
    /// The column of the time, in RFC 3339 [default: time, if it is there]
    #[arg(long, value_name = "COLUMN")]
    time_column: Option<String>,
    /// What separates the columns
    #[arg(long, value_name = "CHARACTER", default_value = ",")]
    delimiter: char,
    #[command(flatten)]
    audit_context: AuditContext,
    #[command(flatten)]
    format: OutputFormat,
}

impl Arguments {
    /// Prints the differences. Whether there are none.
    pub(super) async fn run(self, client: &Client) -> Result<bool, Failure> {
        let export = self.read()?;
        let period = self.period(&export)?;
        let found =
            reconciliation::reconcile_bank_export(client, &self.rail, period, &export, self.audit_context.given())
                .await?;
        let rows = export.idempotency_keys.len();
        self.format.print(&found, || text(&found, rows))?;
        self.note_open_orphans(client).await?;
        Ok(found.is_empty())
    }

    /// Says which time an export must still cover, for the orphaned outcomes of the rail that were not in this one.
    async fn note_open_orphans(&self, client: &Client) -> Result<(), Failure> {
        let mut open = reader::orphans(client, MAX_ORPHANS).await?;
        open.retain(|orphan| orphan.is_open && orphan.rail_type.as_ref().is_none_or(|rail| *rail == self.rail));
        let times = || open.iter().flat_map(|orphan| orphan.claimed_at.into_iter().chain([orphan.created_at]));
        if let (Some(from), Some(to)) = (times().min(), times().max()) {
            print_note(&format!(
                "{} orphaned outcomes of this rail are still open, from {from} to {to}: reconcile an export of that time, with \
                 --from and --to",
                open.len()
            ));
        }
        Ok(())
    }

    fn read(&self) -> Result<BankExport, Failure> {
        let file = self.bank_export.display();
        let cannot = |error| Failure::because(format!("cannot read {file}"), error);
        let size = std::fs::metadata(&self.bank_export).map_err(cannot)?.len();
        if size > MAX_BYTES {
            return Err(Failure::usage(format!("{file} has {size} bytes, and the limit is {MAX_BYTES}"))
                .hint("split the export by time, and reconcile each part with --from and --to"));
        }
        let bytes = std::fs::read(&self.bank_export).map_err(cannot)?;
        self.parse(&bytes).map_err(|failure| failure.with_context(&file.to_string()))
    }

    fn parse(&self, bytes: &[u8]) -> Result<BankExport, Failure> {
        let delimiter = u8::try_from(self.delimiter)
            .ok()
            .filter(u8::is_ascii)
            .ok_or_else(|| Failure::usage("--delimiter must be one ASCII character"))?;
        // A byte order mark would be a part of the first name.
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let mut reader = ReaderBuilder::new().delimiter(delimiter).from_reader(bytes);
        let header =
            reader.headers().map_err(|error| Failure::because("the header cannot be read", error))?.clone();
        let columns = Columns::find(self, &header)?;
        let mut export = BankExport::default();
        for (number, record) in reader.records().enumerate() {
            let record = record.map_err(|error| Failure::because("a line cannot be read", error))?;
            let line = record.position().map_or(0, csv::Position::line);
            if number == MAX_ROWS {
                return Err(Failure::usage(format!("it has more than {MAX_ROWS} payments"))
                    .hint("split the export by time, and reconcile each part with --from and --to"));
            }
            columns.push(&mut export, &record).map_err(|failure| failure.with_context(&format!("line {line}")))?;
        }
        Ok(export)
    }

    /// What the export covers. Its own times, unless the arguments say more.
    fn period(&self, export: &BankExport) -> Result<Period, Failure> {
        let times = || export.executed_ats.iter().flatten();
        let missing = |name: &str| {
            Failure::usage(format!("--{name} is needed: the export has no time"))
                .hint("name the column of the time with --time-column, or give --from and --to")
        };
        let from = self.from.or_else(|| times().min().copied()).ok_or_else(|| missing("from"))?;
        // The last payment is in the period.
        let last = || times().max().and_then(|last| last.checked_add(SignedDuration::from_micros(1)).ok());
        let to = self.to.or_else(last).ok_or_else(|| missing("to"))?;
        if from >= to {
            return Err(Failure::usage(format!("--from {from} must be before --to {to}")));
        }
        Ok(Period { from, to })
    }
}

/// Where the fields of a payment are.
struct Columns {
    key: usize,
    reference: Option<usize>,
    amount: Option<usize>,
    currency: Option<usize>,
    time: Option<usize>,
}

impl Columns {
    fn find(arguments: &Arguments, header: &StringRecord) -> Result<Self, Failure> {
        let position = |name: &str| header.iter().position(|column| column.trim() == name);
        let given = |name: &str| {
            position(name).ok_or_else(|| {
                let columns = header.iter().collect::<Vec<_>>().join(", ");
                Failure::usage(format!("it has no column {name:?}; its columns are: {columns}"))
                    .hint("name the columns with --key-column, --reference-column, --amount-column, --currency-column and --time-column")
            })
        };
        let optional = |name: &Option<String>, default: &str| match name {
            Some(name) => given(name).map(Some),
            None => Ok(position(default)),
        };
        Ok(Self {
            key: given(&arguments.key_column)?,
            reference: optional(&arguments.reference_column, "reference")?,
            amount: optional(&arguments.amount_column, "amount")?,
            currency: optional(&arguments.currency_column, "currency")?,
            time: optional(&arguments.time_column, "time")?,
        })
    }

    fn push(&self, export: &mut BankExport, record: &StringRecord) -> Result<(), Failure> {
        let field = |column: Option<usize>| {
            let text = record.get(column?)?.trim();
            (!text.is_empty()).then(|| text.to_owned())
        };
        let key = field(Some(self.key)).ok_or_else(|| Failure::usage("the idempotency key is empty"))?;
        let time = field(self.time).map(|text| {
            text.parse::<Timestamp>().map_err(|_| {
                Failure::usage(format!("{text:?} is no time such as 2026-05-03T10:00:00Z"))
                    .hint("a time needs its offset from UTC; a local time would be a guess")
            })
        });
        export.idempotency_keys.push(key);
        export.rail_references.push(field(self.reference));
        export.amounts.push(field(self.amount));
        export.currencies.push(field(self.currency));
        export.executed_ats.push(time.transpose()?);
        Ok(())
    }
}

fn text(found: &[Discrepancy], rows: usize) -> String {
    if found.is_empty() {
        return format!("{rows} payments of the bank, and no difference\n");
    }
    let mut table =
        Table::new(["finding", "key", "bank reference", "amount", "executed", "state here", "outbox", "orphan"]);
    for one in found {
        let plain = |text: &Option<String>| text.clone().unwrap_or_default();
        let state =
            [one.state.as_deref(), one.error_code.as_deref()].into_iter().flatten().collect::<Vec<_>>().join(" ");
        table.push([
            one.finding.clone(),
            plain(&one.idempotency_key),
            plain(&one.rail_reference),
            [&one.amount, &one.currency].into_iter().flatten().cloned().collect::<Vec<_>>().join(" "),
            one.executed_at.map(|at| at.to_string()).unwrap_or_default(),
            state,
            one.outbox_id.map(|id| id.to_string()).unwrap_or_default(),
            if one.is_orphan { "yes".to_owned() } else { String::new() },
        ]);
    }
    format!("{}\n{rows} payments of the bank, {} differences\n", table.render(), found.len())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn arguments(more: &[&str]) -> Arguments {
        let always = ["symphony", "--bank-export", "x", "--rail", "sepa", "--actor", "ana", "--reason", "a test"];
        Cli::try_parse_from(always.iter().chain(more)).unwrap().arguments
    }

    fn refusal(more: &[&str], csv: &str) -> String {
        let arguments = arguments(more);
        let failure = arguments.parse(csv.as_bytes()).and_then(|export| arguments.period(&export)).unwrap_err();
        failure.render()
    }

    #[test]
    fn the_columns_are_found_by_name_in_any_order() {
        let csv = "\u{feff}time;ref;idempotency_key;amount\n2026-05-03T10:00:00Z;R1;k1;10.50\n2026-05-03T09:00:00+01:00;;\"k;2\";\n";
        let arguments = arguments(&["--delimiter", ";", "--reference-column", "ref"]);
        let export = arguments.parse(csv.as_bytes()).unwrap();
        assert_eq!(export.idempotency_keys, ["k1", "k;2"]);
        assert_eq!(export.rail_references, [Some("R1".to_owned()), None]);
        assert_eq!((&export.amounts[0], &export.currencies[0]), (&Some("10.50".to_owned()), &None));
        let period = arguments.period(&export).unwrap();
        assert_eq!(period.from.to_string(), "2026-05-03T08:00:00Z");
        assert_eq!(period.to.to_string(), "2026-05-03T10:00:00.000001Z");
    }

    #[test]
    fn an_export_that_cannot_be_read_is_refused_with_what_to_do() {
        for (more, csv, expected) in [
            (&[][..], "key,amount\nk,1\n", "no column \"idempotency_key\"; its columns are: key, amount"),
            (&["--time-column", "day"], "idempotency_key\nk\n", "no column \"day\""),
            (&[], "idempotency_key,time\n,2026-05-03T10:00:00Z\n", "line 2: the idempotency key is empty"),
            (&[], "idempotency_key,time\nk,2026-05-03\n", "\"2026-05-03\" is no time such as"),
            (&[], "idempotency_key\nk\n", "--from is needed: the export has no time"),
            (&[], "idempotency_key,time\nk\n", "a line cannot be read"),
            (
                &["--from", "2026-05-03T10:00:00Z", "--to", "2026-05-03T09:00:00Z"],
                "idempotency_key\nk\n",
                "must be before --to",
            ),
        ] {
            let found = refusal(more, csv);
            assert!(found.contains(expected), "{found}");
        }
    }
}
