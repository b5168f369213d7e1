use std::sync::Arc;

/// The folder name of an adapter, such as `stripe`: lower case, words joined by `_`.
pub type AdapterName = Arc<str>;
