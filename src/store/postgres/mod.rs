//! PostgreSQL.
use super::{Options, Store, StoreError};
use std::sync::Arc;
pub(super) struct PostgresStore;
impl PostgresStore {
    pub(super) async fn open(_: &str, _: Options) -> Result<Arc<dyn Store>, StoreError> {
        Err(StoreError::Closed)
    }
}
