//! Ordering: which deliveries of a handler wait for each other.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

/// What becomes of the later deliveries of an ordering key when one is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OrderingDead {
    /// They wait until a person reprocesses or discards it, or retention removes it.
    #[default]
    Hold,
    /// They go on without it.
    Skip,
}

/// A handler whose deliveries of one ordering key run one at a time, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderedHandler {
    pub name: Arc<str>,
    pub dead: OrderingDead,
}

/// The lane of a provider's ordering key. Within one handler, deliveries of one lane wait for each other. Ordering keys of
/// two providers have nothing to do with each other.
///
/// The first 64 bits of a SHA-256, as `cerca_lane` of the PostgreSQL schema computes it: an index entry of eight bytes,
/// however long the key is.
#[must_use]
pub fn lane(provider: &str, ordering_key: &str) -> i64 {
    let hash = Sha256::new()
        .chain_update(provider)
        .chain_update(":")
        .chain_update(ordering_key)
        .finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&hash[..8]);
    i64::from_be_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_stable_and_apart() {
        // What is stored must be found again by a later version.
        assert_eq!(lane("stripe", "cus_1"), LANE_OF_CUS_1);
        assert_ne!(lane("stripe", "cus_1"), lane("stripe-br", "cus_1"));
        assert_ne!(lane("stripe", "cus_1"), lane("stripe", "cus_2"));
    }

    const LANE_OF_CUS_1: i64 = -1_476_887_061_811_258_904;
}
