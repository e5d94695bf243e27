//! The workspace's crates and what each depends on, read from their manifests.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::Context;

/// A crate of the workspace.
#[derive(Debug)]
pub(crate) struct Crate {
    /// From the workspace's root on, as in `shared/model`.
    pub(crate) folder: String,
    /// The package's name, as in `anteroom-model`.
    pub(crate) name: String,
    pub(crate) manifest: String,
}

/// The members of the workspace under `root`, by folder.
pub(crate) fn all(root: &Path) -> anyhow::Result<Vec<Crate>> {
    let workspace = fs::read_to_string(root.join("Cargo.toml"))?;
    let members = list(&workspace, "members").context("Cargo.toml names no members")?;
    let read = |folder: &str| {
        let path = root.join(folder).join("Cargo.toml");
        let manifest =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = manifest
            .lines()
            .find_map(|line| line.strip_prefix("name = "));
        let name = name.with_context(|| format!("{} has no name", path.display()))?;
        Ok(Crate {
            folder: folder.to_owned(),
            name: name.trim_matches('"').to_owned(),
            manifest,
        })
    };
    members.into_iter().map(read).collect()
}

/// The strings of a list in the workspace's manifest, sorted.
fn list<'a>(manifest: &'a str, key: &str) -> Option<BTreeSet<&'a str>> {
    let (_, rest) = manifest.split_once(&format!("\n{key} = ["))?;
    let (inside, _) = rest.split_once(']')?;
    Some(inside.split('"').skip(1).step_by(2).collect())
}

/// The crates of the workspace floor by floor, the highest first, each with what it stands on directly. A
/// crate that is reached through another one is left out.
pub(crate) fn floors(crates: &[Crate]) -> String {
    let folders: BTreeMap<&str, &str> = crates
        .iter()
        .map(|of| (of.name.as_str(), of.folder.as_str()))
        .collect();
    let direct: BTreeMap<&str, BTreeSet<&str>> = crates
        .iter()
        .map(|of| {
            let own = dependencies(&of.manifest)
                .into_iter()
                .filter(|d| folders.contains_key(d));
            (of.name.as_str(), own.collect())
        })
        .collect();
    let mut rows: Vec<_> = direct
        .iter()
        .map(|(name, own)| {
            let through: BTreeSet<&str> = own.iter().flat_map(|d| below(&direct, d)).collect();
            let drawn = own
                .difference(&through)
                .map(|d| short(d))
                .collect::<Vec<_>>();
            (height(&direct, name), folders[name], drawn.join(" "))
        })
        .collect();
    rows.sort_by_key(|(height, folder, _)| (std::cmp::Reverse(*height), *folder));
    let width = rows
        .iter()
        .map(|(_, folder, _)| folder.len())
        .max()
        .unwrap_or_default();
    let line = |(height, folder, on): &(usize, &str, String)| {
        format!("{height}  {folder:width$}  {on}")
            .trim_end()
            .to_owned()
            + "\n"
    };
    rows.iter().map(line).collect()
}

/// `model`, of `anteroom-model`.
fn short(name: &str) -> &str {
    name.strip_prefix("anteroom-").unwrap_or(name)
}

/// The crates that one depends on, directly or not.
fn below<'a>(direct: &BTreeMap<&'a str, BTreeSet<&'a str>>, name: &str) -> BTreeSet<&'a str> {
    let own = direct.get(name).into_iter().flatten().copied();
    own.clone()
        .chain(own.flat_map(|d| below(direct, d)))
        .collect()
}

/// The floor of a crate: one more than the highest floor of its dependencies.
fn height(direct: &BTreeMap<&str, BTreeSet<&str>>, name: &str) -> usize {
    let own = direct.get(name).into_iter().flatten();
    own.map(|d| height(direct, d) + 1).max().unwrap_or_default()
}

/// The dependencies of a manifest's crate, however they are written: by a table of their own, for some targets
/// only, or by another name. Those of its tests and of its build are left out.
pub(crate) fn dependencies(manifest: &str) -> Vec<&str> {
    let Listed { names, packages } = listed(manifest, "dependencies");
    [names, packages].concat()
}

/// The dependencies that a manifest lists.
#[derive(Debug, Default)]
pub(crate) struct Listed<'a> {
    /// The names that they have here.
    pub(crate) names: Vec<&'a str>,
    /// The packages of those that are renamed.
    pub(crate) packages: Vec<&'a str>,
}

/// The dependencies of the tables of this name, as `dependencies` or `dev-dependencies`.
pub(crate) fn listed<'a>(manifest: &'a str, table: &str) -> Listed<'a> {
    let for_targets = format!(".{table}");
    let is_table = |header: &str| header == table || header.ends_with(&for_targets);
    let (mut listed, mut lists, mut describes) = (Listed::default(), false, false);
    for line in manifest.lines().map(str::trim) {
        let header = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        if let Some(header) = header {
            lists = is_table(header);
            let own = header.rsplit_once('.');
            let own = own.filter(|(table, _)| is_table(table));
            describes = own.is_some();
            let own = own.map(|(_, name)| name.trim_matches(['"', '\'']));
            listed.names.extend(own);
        } else if lists {
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            let is_name = !name.is_empty() && !name.starts_with('#');
            let own = is_name.then(|| name.trim_matches(['"', '\'']));
            listed.names.extend(own);
        }
        if lists || describes {
            listed.packages.extend(package(line));
        }
    }
    listed
}

/// `tokio`, of `package = "tokio"`.
fn package(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("package")?;
    let value = rest.trim_start().strip_prefix('=')?.trim_start();
    value.strip_prefix('"')?.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(folder: &str, on: &[&str]) -> Crate {
        let line = |d: &&str| format!("anteroom-{d}.workspace = true\n");
        Crate {
            folder: folder.to_owned(),
            name: format!("anteroom-{}", folder.rsplit('/').next().unwrap()),
            manifest: format!(
                "[dependencies]\n{}",
                on.iter().map(line).collect::<String>()
            ),
        }
    }

    #[test]
    fn crates_are_drawn_above_their_nearest_dependencies() {
        let crates = [
            named("shared/model", &[]),
            named("shared/wire", &["model"]),
            named("services/webhook", &["wire", "model"]),
        ];
        let drawn = "2  services/webhook  wire\n1  shared/wire       model\n0  shared/model\n";
        assert_eq!(floors(&crates), drawn);
    }
}
