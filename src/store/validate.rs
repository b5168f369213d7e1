//! What neither engine takes.

use super::StoreError;
use crate::domain::NewEvent;

/// Longest provider event id in bytes: what fits a PostgreSQL index row, the same on both engines.
const MAX_ID_BYTES: usize = 2048;

/// What PostgreSQL's `text` or an index cannot hold is refused by both engines, before it can spoil a batch.
pub(super) fn validate(events: &[NewEvent]) -> Result<(), StoreError> {
    for event in events {
        let texts = [
            Some(&*event.provider),
            Some(event.provider_event_id.as_str()),
            event.event_type.as_deref(),
            event.content_type.as_deref(),
            Some(event.headers.as_str()),
            event.ordering_key.as_deref(),
        ];
        if texts.iter().flatten().any(|text| text.contains('\0')) {
            return Err(StoreError::Refused(
                "a NUL character in an id, type, ordering key or header".to_owned(),
            ));
        }
        if event.provider_event_id.len() > MAX_ID_BYTES {
            return Err(StoreError::Refused(format!(
                "an event id of more than {MAX_ID_BYTES} bytes"
            )));
        }
    }
    Ok(())
}
