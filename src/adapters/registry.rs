//! The adapters there are: the embedded folders, and those of a directory that add to them or override them.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use rust_embed::RustEmbed;

use super::adapter::{Adapter, AdapterError, Files};

/// The folders that come with the binary.
#[derive(RustEmbed)]
#[folder = "providers/"]
#[allow_missing = true]
struct Embedded;

/// All adapters, by name.
#[derive(Debug, Default)]
pub struct Registry {
    adapters: BTreeMap<String, Adapter>,
}

/// Why the adapters cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    #[error("cannot read {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Adapter(#[from] AdapterError),
}

impl Registry {
    /// The adapters that come with the binary.
    ///
    /// # Errors
    /// Where an embedded folder is wrong, which tests exclude for a released binary.
    pub fn embedded() -> Result<Self, RegistryError> {
        Self::strict(embedded_folders())
    }

    /// The embedded adapters, and those in `directory`, which override those of the same name.
    ///
    /// # Errors
    /// Where a folder cannot be read, or one is wrong.
    pub fn with_dir(directory: &Path) -> Result<Self, RegistryError> {
        let mut folders = embedded_folders();
        folders.extend(folders_in(directory)?);
        Self::strict(folders)
    }

    /// All adapters that are right, and what is wrong with the others; for `providers check`.
    ///
    /// # Errors
    /// Where `directory` cannot be read.
    pub fn read_all(directory: Option<&Path>) -> Result<(Self, Vec<AdapterError>), RegistryError> {
        let mut folders = embedded_folders();
        if let Some(directory) = directory {
            folders.extend(folders_in(directory)?);
        }
        let mut registry = Self::default();
        let mut errors = Vec::new();
        for (name, files) in folders {
            match Adapter::load(&name, files) {
                Ok(adapter) => registry.insert(adapter),
                Err(error) => errors.push(error),
            }
        }
        Ok((registry, errors))
    }

    fn strict(folders: BTreeMap<String, Files>) -> Result<Self, RegistryError> {
        let mut registry = Self::default();
        for (name, files) in folders {
            registry.insert(Adapter::load(&name, files)?);
        }
        Ok(registry)
    }

    /// Adds an adapter, or replaces the one of its name.
    pub fn insert(&mut self, adapter: Adapter) {
        self.adapters.insert(adapter.name.to_string(), adapter);
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Adapter> {
        self.adapters.get(name)
    }

    /// All names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.adapters.keys().map(String::as_str)
    }

    /// All adapters, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &Adapter> {
        self.adapters.values()
    }

    /// A known name that looks like this one.
    pub(crate) fn similar(&self, name: &str) -> Option<String> {
        let bare = |text: &str| text.replace(['_', '-'], "");
        let wanted = bare(name);
        let close = |known: &&str| {
            let known = bare(known);
            known == wanted
                || wanted.len() > 2 && (known.starts_with(&wanted) || wanted.starts_with(&known))
        };
        self.names().find(close).map(str::to_owned)
    }
}

fn embedded_folders() -> BTreeMap<String, Files> {
    let mut folders: BTreeMap<String, Files> = BTreeMap::new();
    for path in Embedded::iter() {
        if let (Some((folder, file)), Some(content)) = (path.split_once('/'), Embedded::get(&path))
        {
            let files = folders
                .entry(folder.to_owned())
                .or_insert_with(|| Files::new(&format!("providers/{folder}")));
            files.add(file, content.data.into_owned());
        }
    }
    folders.retain(|_, files| files.has_manifest());
    folders
}

fn folders_in(directory: &Path) -> Result<BTreeMap<String, Files>, RegistryError> {
    let mut folders = BTreeMap::new();
    for path in entries(directory)? {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .map(str::to_owned);
        let (Some(name), true) = (name, path.join("adapter.toml").is_file()) else {
            continue;
        };
        let mut files = Files::new(&path.display().to_string());
        for file in ["adapter.toml", "vectors.jsonl"] {
            if path.join(file).is_file() {
                files.add(file, read(&path.join(file))?);
            }
        }
        let samples = path.join("samples");
        if samples.is_dir() {
            for sample in entries(&samples)? {
                if let Some(name) = sample.file_name().and_then(|name| name.to_str()) {
                    files.add(&format!("samples/{name}"), read(&sample)?);
                }
            }
        }
        folders.insert(name, files);
    }
    Ok(folders)
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>, RegistryError> {
    let failed = |source| RegistryError::Read {
        path: directory.to_owned(),
        source,
    };
    fs::read_dir(directory)
        .map_err(failed)?
        .map(|entry| entry.map(|entry| entry.path()).map_err(failed))
        .collect()
}

fn read(path: &Path) -> Result<Vec<u8>, RegistryError> {
    fs::read(path).map_err(|source| RegistryError::Read {
        path: path.to_owned(),
        source,
    })
}
