//! `normalized:amount` and its like in the parameters of a sql statement.

use std::{collections::HashMap, sync::Arc};

use crate::{adapters::Normalize, domain::Claim, ingest::Normalized, store::SqlValue};

/// By provider: how its events are said in common words, where its adapter knows.
pub type Normalizers = HashMap<String, Arc<Normalize>>;

/// What a claimed event says in common words.
pub(super) fn read(normalizers: &Normalizers, claim: &Claim) -> Option<Normalized> {
    normalizers
        .get(&*claim.event.provider)?
        .read(claim.event.as_ref().into())
}

/// One of the fields of [`Normalized`].
#[derive(Clone, Copy)]
pub(super) enum NormalizedField {
    Type,
    Amount,
    Currency,
    Reference,
    Customer,
    OccurredAt,
}

impl NormalizedField {
    pub(super) fn parse(name: &str) -> Result<Self, String> {
        Ok(match name {
            "type" => Self::Type,
            "amount" => Self::Amount,
            "currency" => Self::Currency,
            "reference" => Self::Reference,
            "customer" => Self::Customer,
            "occurred_at" => Self::OccurredAt,
            _ => {
                return Err(
                    "a normalized event has type, amount, currency, reference, customer and occurred_at".into(),
                );
            }
        })
    }

    /// Null where the event does not say it.
    pub(super) fn read(self, normalized: Option<&Normalized>) -> SqlValue {
        let Some(normalized) = normalized else {
            return SqlValue::Null;
        };
        let text = |text: Option<String>| text.map_or(SqlValue::Null, SqlValue::Text);
        match self {
            Self::Type => text(normalized.event_type.map(str::to_owned)),
            Self::Amount => normalized.amount.map_or(SqlValue::Null, SqlValue::Int),
            Self::Currency => text(normalized.currency.clone()),
            Self::Reference => text(normalized.reference.clone()),
            Self::Customer => text(normalized.customer.clone()),
            Self::OccurredAt => text(normalized.occurred_at.map(|time| time.to_string())),
        }
    }
}
