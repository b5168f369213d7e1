//! JSON pointers (RFC 6901), gathered into a trie so that one pass over a document finds them all.

/// The pointers wanted from one document. Node 0 is the document itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    nodes: Vec<Node>,
    slots: usize,
}

/// One step of the trie: what is wanted at this place, and below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Node {
    /// Where the value at this place goes.
    pub(crate) slot: Option<usize>,
    /// Keys (or array indices, as text) that lead on, each with the index of its node.
    pub(crate) children: Vec<(Box<[u8]>, usize)>,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            nodes: vec![Node::default()],
            slots: 0,
        }
    }
}

impl Wanted {
    /// A trie of one pointer, whose slot is 0.
    pub(crate) fn only(tokens: &[String]) -> Self {
        let mut wanted = Self::default();
        wanted.add(tokens);
        wanted
    }

    /// Adds a pointer and returns its slot. The same pointer has the same slot.
    pub(crate) fn add(&mut self, tokens: &[String]) -> usize {
        let mut at = 0;
        for token in tokens {
            let key = token.as_bytes();
            let known = self.nodes[at]
                .children
                .iter()
                .find(|(name, _)| **name == *key)
                .map(|(_, child)| *child);
            at = known.unwrap_or_else(|| {
                let child = self.nodes.len();
                self.nodes.push(Node::default());
                self.nodes[at].children.push((key.into(), child));
                child
            });
        }
        let next = self.slots;
        let slot = *self.nodes[at].slot.get_or_insert(next);
        self.slots = self.slots.max(slot + 1);
        slot
    }

    /// The pointer of a slot, as tokens.
    pub(crate) fn path(&self, slot: usize) -> Option<Vec<String>> {
        let mut at = self.nodes.iter().position(|node| node.slot == Some(slot))?;
        let mut tokens = Vec::new();
        while at != 0 {
            let parent = |node: &Node| node.children.iter().find(|(_, child)| *child == at).cloned();
            let (above, (key, _)) = self
                .nodes
                .iter()
                .enumerate()
                .find_map(|(index, node)| Some((index, parent(node)?)))?;
            tokens.push(String::from_utf8_lossy(&key).into_owned());
            at = above;
        }
        tokens.reverse();
        Some(tokens)
    }

    /// Number of slots.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    pub(crate) fn node(&self, index: usize) -> &Node {
        &self.nodes[index]
    }
}

/// Splits a pointer into unescaped tokens. The empty pointer is the whole document.
///
/// # Errors
/// A sentence, where the text is no pointer.
pub(crate) fn parse_pointer(text: &str) -> Result<Vec<String>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let Some(rest) = text.strip_prefix('/') else {
        return Err(format!("expected a JSON pointer such as `/id`, found `{text}`"));
    };
    rest.split('/').map(unescape).collect()
}

fn unescape(token: &str) -> Result<String, String> {
    let mut out = String::with_capacity(token.len());
    let mut chars = token.chars();
    while let Some(c) = chars.next() {
        match (c, c == '~') {
            (_, false) => out.push(c),
            (_, true) => match chars.next() {
                Some('0') => out.push('~'),
                Some('1') => out.push('/'),
                _ => {
                    return Err(format!("`~` in `{token}` must be `~0` (a tilde) or `~1` (a slash)"));
                }
            },
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_pointer_has_the_same_slot() {
        let mut wanted = Wanted::default();
        let id = wanted.add(&parse_pointer("/a/b").unwrap());
        assert_ne!(id, wanted.add(&parse_pointer("/a").unwrap()));
        assert_eq!(id, wanted.add(&parse_pointer("/a/b").unwrap()));
        assert_eq!(wanted.slots(), 2);
    }

    #[test]
    fn tokens_are_unescaped() {
        assert_eq!(parse_pointer("/a~1b/~0/").unwrap(), ["a/b", "~", ""]);
        assert!(parse_pointer("/a~2").is_err());
        assert!(parse_pointer("a").is_err());
    }
}
