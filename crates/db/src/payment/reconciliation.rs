//! Compares a bank's export of executed payments with the database. The rules are in `reconcile_bank_export`.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;

use super::operator::AuditContext;
use crate::OutboxId;
use crate::error::OperateError;

const RECONCILE: &str = "\
    select finding, idempotency_key, rail_reference, amount, currency, executed_at, outbox_id, instruction_id, state, \
           error_code, ledger_reference, is_orphan \
    from symphony.reconcile_bank_export($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

/// The rows of a bank's export, by column. Each column has an element for each payment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BankExport {
    /// The idempotency keys.
    pub idempotency_keys: Vec<String>,
    /// The bank's references.
    pub rail_references: Vec<Option<String>>,
    /// The amounts, as text.
    pub amounts: Vec<Option<String>>,
    /// The currencies.
    pub currencies: Vec<Option<String>>,
    /// When the bank executed them.
    pub executed_ats: Vec<Option<Timestamp>>,
}

/// The time whose payments an export has completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// From here on.
    pub from: Timestamp,
    /// Until before this.
    pub to: Timestamp,
}

/// A difference between a bank's export and the database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Discrepancy {
    /// What differs, such as `EXECUTED_WITHOUT_ROW`.
    pub finding: String,
    /// The idempotency key.
    pub idempotency_key: Option<String>,
    /// The bank's reference in the export; of a payment that the bank executed twice, all of them.
    pub rail_reference: Option<String>,
    /// The amount in the export.
    pub amount: Option<String>,
    /// The currency in the export.
    pub currency: Option<String>,
    /// When the bank executed it.
    pub executed_at: Option<Timestamp>,
    /// The newest outbox of the key.
    pub outbox_id: Option<OutboxId>,
    /// Its instruction.
    pub instruction_id: Option<String>,
    /// Its state here.
    pub state: Option<String>,
    /// The error of its last attempt.
    pub error_code: Option<String>,
    /// The bank's reference in the ledger.
    pub ledger_reference: Option<String>,
    /// Whether an orphaned outcome has this key.
    pub is_orphan: bool,
}

/// Compares an export of a rail with the database, and records that in the audit log.
///
/// # Errors
///
/// See [`OperateError`].
pub async fn reconcile_bank_export(
    client: &impl GenericClient,
    rail_type: &str,
    period: Period,
    export: &BankExport,
    audit: AuditContext<'_>,
) -> Result<Vec<Discrepancy>, OperateError> {
    let rows = client
        .query_typed(
            RECONCILE,
            &[
                (&rail_type, Type::TEXT),
                (&period.from, Type::TIMESTAMPTZ),
                (&period.to, Type::TIMESTAMPTZ),
                (&export.idempotency_keys, Type::TEXT_ARRAY),
                (&export.rail_references, Type::TEXT_ARRAY),
                (&export.amounts, Type::TEXT_ARRAY),
                (&export.currencies, Type::TEXT_ARRAY),
                (&export.executed_ats, Type::TIMESTAMPTZ_ARRAY),
                (&audit.actor, Type::TEXT),
                (&audit.reason, Type::TEXT),
            ],
        )
        .await?;
    rows.iter()
        .map(|row| {
            Ok(Discrepancy {
                finding: row.try_get("finding")?,
                idempotency_key: row.try_get("idempotency_key")?,
                rail_reference: row.try_get("rail_reference")?,
                amount: row.try_get("amount")?,
                currency: row.try_get("currency")?,
                executed_at: row.try_get("executed_at")?,
                outbox_id: row.try_get("outbox_id")?,
                instruction_id: row.try_get("instruction_id")?,
                state: row.try_get("state")?,
                error_code: row.try_get("error_code")?,
                ledger_reference: row.try_get("ledger_reference")?,
                is_orphan: row.try_get("is_orphan")?,
            })
        })
        .collect()
}
