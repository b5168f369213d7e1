//! How deep a text is, without recursion.

use super::MAX_DEPTH;

/// Which brackets are open, a bit each (set: an object).
pub(super) struct OpenBrackets {
    bits: [u64; MAX_DEPTH / 64],
    pub(super) len: usize,
}

impl Default for OpenBrackets {
    fn default() -> Self {
        Self {
            bits: [0; MAX_DEPTH / 64],
            len: 0,
        }
    }
}

impl OpenBrackets {
    pub(super) fn push(&mut self, object: bool) {
        let (word, bit) = (self.len / 64, self.len % 64);
        self.bits[word] = self.bits[word] & !(1 << bit) | (u64::from(object) << bit);
        self.len += 1;
    }

    pub(super) fn pop(&mut self) {
        self.len -= 1;
    }

    pub(super) fn last(&self) -> Option<bool> {
        let top = self.len.checked_sub(1)?;
        Some(self.bits[top / 64] >> (top % 64) & 1 == 1)
    }
}
