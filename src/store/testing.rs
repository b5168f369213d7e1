//! For stores in memory, which tests of other modules use: the parts that those tests do not look at.

/// Implements [`super::Upkeep`] and [`super::Quarantine`]: what is refused is forgotten, and all else is refused.
macro_rules! no_upkeep {
    ($store:ty) => {
        impl $crate::store::Upkeep for $store {
            fn known<'a>(&'a self, _: &'a str, ids: Vec<String>) -> $crate::store::StoreFuture<'a, Vec<bool>> {
                Box::pin(async move { Ok(vec![false; ids.len()]) })
            }

            fn export(
                &self,
                _: $crate::store::EventFilter,
                _: Option<i64>,
                _: u32,
                _: usize,
            ) -> $crate::store::StoreFuture<'_, $crate::store::Export> {
                $crate::store::testing::no()
            }

            fn rehearse(&self, _: $crate::store::Effect) -> $crate::store::StoreFuture<'_, Result<(), String>> {
                $crate::store::testing::no()
            }

            fn begin_job(
                &self,
                _: $crate::store::NewJob,
                _: $crate::store::Who,
            ) -> $crate::store::StoreFuture<'_, $crate::store::Job> {
                $crate::store::testing::no()
            }

            fn step_job(&self, _: i64, _: u32) -> $crate::store::StoreFuture<'_, Option<$crate::store::Job>> {
                $crate::store::testing::no()
            }

            fn job(&self, _: i64) -> $crate::store::StoreFuture<'_, Option<$crate::store::Job>> {
                $crate::store::testing::no()
            }

            fn audit(
                &self,
                _: $crate::store::AuditFilter,
            ) -> $crate::store::StoreFuture<'_, Vec<$crate::store::AuditRow>> {
                $crate::store::testing::no()
            }

            fn jobs(&self, _: u32) -> $crate::store::StoreFuture<'_, Vec<$crate::store::Job>> {
                $crate::store::testing::no()
            }

            fn set_job_running(
                &self,
                _: i64,
                _: bool,
                _: $crate::store::Runner,
            ) -> $crate::store::StoreFuture<'_, Option<$crate::store::Job>> {
                $crate::store::testing::no()
            }

            fn begin_backfill<'a>(
                &'a self,
                _: &'a str,
                _: std::time::Duration,
            ) -> $crate::store::StoreFuture<'a, Option<$crate::store::BackfillTurn>> {
                $crate::store::testing::no()
            }

            fn end_backfill<'a>(&'a self, _: &'a str, _: jiff::Timestamp) -> $crate::store::StoreFuture<'a, ()> {
                $crate::store::testing::no()
            }
        }

        impl $crate::store::Quarantine for $store {
            fn quarantine(
                &self,
                _: Vec<$crate::store::Refused>,
                _: $crate::store::Room,
            ) -> $crate::store::StoreFuture<'_, ()> {
                Box::pin(async { Ok(()) })
            }

            fn quarantined(
                &self,
                _: $crate::store::RefusedFilter,
                _: Option<i64>,
                _: u32,
            ) -> $crate::store::StoreFuture<'_, $crate::store::RefusedPage> {
                $crate::store::testing::no()
            }

            fn quarantined_one(
                &self,
                _: i64,
            ) -> $crate::store::StoreFuture<'_, Option<($crate::store::RefusedRow, bytes::Bytes)>> {
                $crate::store::testing::no()
            }

            fn readmitted(&self, _: i64, _: $crate::store::Who) -> $crate::store::StoreFuture<'_, bool> {
                $crate::store::testing::no()
            }

            fn purge_quarantine(&self, _: std::time::Duration) -> $crate::store::StoreFuture<'_, u64> {
                $crate::store::testing::no()
            }
        }
    };
}
pub(crate) use no_upkeep;

pub(crate) fn no<T>() -> super::StoreFuture<'static, T> {
    Box::pin(async { Err(super::StoreError::Refused("not in this store".to_owned())) })
}
