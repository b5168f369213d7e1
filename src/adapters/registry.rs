//! The adapters there are: the embedded folders, and those of a directory that add to them or override them.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{LazyLock, OnceLock},
};

use rust_embed::RustEmbed;

use super::adapter::{Adapter, AdapterError, Files};

/// The folders that come with the binary.
#[derive(RustEmbed)]
#[folder = "providers/"]
#[allow_missing = true]
struct Embedded;

/// The names of their files, by folder.
static FOLDERS: LazyLock<BTreeMap<String, Vec<String>>> = LazyLock::new(|| {
    let mut folders: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in Embedded::iter() {
        if let Some((folder, file)) = path.split_once('/') {
            folders.entry(folder.to_owned()).or_default().push(file.to_owned());
        }
    }
    folders.retain(|_, files| files.iter().any(|file| file == "adapter.toml"));
    folders
});

/// All adapters, by name. Those of the binary are read when they are first asked for, because few are used.
#[derive(Debug, Default)]
pub struct Registry {
    adapters: BTreeMap<String, Entry>,
}

#[derive(Debug)]
enum Entry {
    Read(Box<Adapter>),
    /// `None` inside: it is wrong, which tests exclude for a released binary.
    Embedded(OnceLock<Option<Box<Adapter>>>),
}

/// Why the adapters cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    #[error("cannot read {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is the folder of one adapter; name the folder that it lies in", .path.display())]
    TooDeep { path: PathBuf },
    #[error(transparent)]
    Adapter(#[from] AdapterError),
}

impl Registry {
    /// The adapters that come with the binary.
    #[must_use]
    pub fn embedded() -> Self {
        let names = FOLDERS.keys().cloned();
        Self {
            adapters: names.map(|name| (name, Entry::Embedded(OnceLock::new()))).collect(),
        }
    }

    /// The embedded adapters, and those in `directory`, which override those of the same name.
    ///
    /// # Errors
    /// Where a folder cannot be read, or one is wrong.
    pub fn with_dir(directory: &Path) -> Result<Self, RegistryError> {
        let mut registry = Self::embedded();
        for (name, files) in folders_in(directory)? {
            registry.insert(Adapter::load(&name, files)?);
        }
        Ok(registry)
    }

    /// All adapters that are right, and what is wrong with the others; for `providers check`.
    ///
    /// # Errors
    /// Where `directory` cannot be read.
    pub fn read_all(directory: Option<&Path>) -> Result<(Self, Vec<AdapterError>), RegistryError> {
        let mut folders: BTreeMap<String, Files> = FOLDERS.keys().map(|name| (name.clone(), embedded(name))).collect();
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

    /// Adds an adapter, or replaces the one of its name.
    pub fn insert(&mut self, adapter: Adapter) {
        self.adapters
            .insert(adapter.name.to_string(), Entry::Read(Box::new(adapter)));
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Adapter> {
        let (name, entry) = self.adapters.get_key_value(name)?;
        entry.adapter(name)
    }

    /// All names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.adapters.keys().map(String::as_str)
    }

    /// All adapters, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &Adapter> {
        self.adapters.iter().filter_map(|(name, entry)| entry.adapter(name))
    }

    /// A known name that looks like this one.
    pub(crate) fn similar(&self, name: &str) -> Option<String> {
        let bare = |text: &str| text.replace(['_', '-'], "");
        let wanted = bare(name);
        let close = |known: &&str| {
            let known = bare(known);
            known == wanted || wanted.len() > 2 && (known.starts_with(&wanted) || wanted.starts_with(&known))
        };
        let nearness = |known: &&str| strsim::jaro_winkler(name, known);
        let nearest = || {
            let near = self.names().filter(|known| nearness(known) > 0.85);
            near.max_by(|a, b| nearness(a).total_cmp(&nearness(b)))
        };
        self.names().find(close).or_else(nearest).map(str::to_owned)
    }
}

impl Entry {
    fn adapter(&self, name: &str) -> Option<&Adapter> {
        match self {
            Self::Read(adapter) => Some(adapter),
            Self::Embedded(cell) => cell
                .get_or_init(|| {
                    let read = Adapter::load(name, embedded(name));
                    read.inspect_err(|error| tracing::error!(%error, "an adapter of the binary is wrong"))
                        .ok()
                        .map(Box::new)
                })
                .as_deref(),
        }
    }
}

/// The files of one folder of the binary.
fn embedded(name: &str) -> Files {
    let folder = format!("providers/{name}");
    let mut files = Files::new(&folder);
    for file in FOLDERS.get(name).into_iter().flatten() {
        if let Some(content) = Embedded::get(&format!("{name}/{file}")) {
            files.add(file, content.data.into_owned());
        }
    }
    files
}

fn folders_in(directory: &Path) -> Result<BTreeMap<String, Files>, RegistryError> {
    if directory.join("adapter.toml").is_file() {
        return Err(RegistryError::TooDeep {
            path: directory.to_owned(),
        });
    }
    let mut folders = BTreeMap::new();
    for path in entries(directory)? {
        let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
        let (Some(name), true) = (name, path.join("adapter.toml").is_file()) else {
            continue;
        };
        let mut files = Files::new(&path.display().to_string());
        for file in entries(&path)?.into_iter().filter(|file| file.is_file()) {
            match file.file_name().and_then(|name| name.to_str()) {
                Some(name @ ("adapter.toml" | "vectors.jsonl")) => files.add(name, read(&file)?),
                // Only that it is there counts.
                Some(name) => files.add(name, Vec::new()),
                None => {}
            }
        }
        let samples = path.join("samples");
        if samples.is_dir() {
            for sample in entries(&samples)? {
                if let (Some(name), true) = (sample.file_name().and_then(|name| name.to_str()), sample.is_file()) {
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
