//! Every embedded folder, and every file of vectors, at once.

use crate::adapters::Registry;

#[test]
fn every_folder_is_understood() {
    let (_, errors) = Registry::read_all(None).unwrap();
    let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}
