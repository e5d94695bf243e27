//! The import graph of a crate's files, and its strongly connected sets.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Module, Segments};

type Modules = BTreeMap<Segments, Module>;

/// Sets of more than one file that all reach each other, each sorted by name.
pub(super) fn knots(modules: &Modules) -> Vec<Vec<String>> {
    let files: Vec<&Segments> = modules.keys().collect();
    let edges: Vec<BTreeSet<usize>> = modules
        .iter()
        .map(|(file, module)| {
            let reached = reached(modules, file, module);
            let place = |target: &Segments| files.binary_search(&target).ok();
            reached.iter().filter_map(place).collect()
        })
        .collect();
    let name = |file: usize| match files[file].as_slice() {
        [] => "lib".to_owned(),
        segments => segments.join("::"),
    };
    connected(&edges)
        .into_iter()
        .map(|knot| knot.into_iter().map(name).collect())
        .collect()
}

/// Each file with each other file whose names it uses.
pub(in crate::tidy) fn edges(modules: &Modules) -> Vec<(Segments, Segments)> {
    let of_each = modules.iter().flat_map(|(file, module)| {
        let reached = reached(modules, file, module).into_iter();
        reached.map(|target| (file.clone(), target))
    });
    of_each.collect()
}

/// The files whose names a file uses.
fn reached(modules: &Modules, file: &Segments, module: &Module) -> BTreeSet<Segments> {
    let local: BTreeMap<&str, &Segments> = module
        .imports
        .iter()
        .map(|(name, path)| (name.as_str(), path))
        .collect();
    let imported = |path: &Segments| match local.get(path[0].as_str()) {
        Some(import) if !matches!(path[0].as_str(), "crate" | "super" | "self") => {
            [import.as_slice(), &path[1..]].concat()
        }
        _ => path.clone(),
    };
    let uses = module.imports.iter().chain(&module.reexports);
    uses.map(|(_, path)| path.clone())
        .chain(module.paths.iter().map(imported))
        .filter_map(|path| absolute(modules, file, &path))
        .filter_map(|path| defines(modules, &path, &mut BTreeSet::new()))
        .filter(|target| target != file)
        .collect()
}

/// The path from the crate's root on; `None` for what is of another crate.
fn absolute(modules: &Modules, file: &Segments, path: &[String]) -> Option<Segments> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([file.as_slice(), rest].concat()),
        "super" => {
            let levels = path.iter().take_while(|part| *part == "super").count();
            let above = &file[..file.len().saturating_sub(levels)];
            Some([above, &path[levels..]].concat())
        }
        _ => {
            let child = [file.as_slice(), std::slice::from_ref(first)].concat();
            let is_child = modules.contains_key(&child);
            is_child.then(|| [file.as_slice(), path].concat())
        }
    }
}

/// The file that defines what an absolute path names, behind all re-exports.
fn defines(modules: &Modules, path: &Segments, seen: &mut BTreeSet<Segments>) -> Option<Segments> {
    if !seen.insert(path.clone()) {
        return None;
    }
    let depth = (0..=path.len())
        .rev()
        .find(|depth| modules.contains_key(&path[..*depth]))?;
    let (file, rest) = path.split_at(depth);
    let file = file.to_vec();
    let module = &modules[&file];
    let Some((name, behind)) = rest.split_first() else {
        return Some(file);
    };
    if module.items.contains(name) {
        return Some(file);
    }
    let named = module.reexports.iter().chain(&module.imports);
    if let Some((_, target)) = named.into_iter().find(|(own, _)| own == name) {
        let target = absolute(modules, &file, target)?;
        return defines(modules, &[target.as_slice(), behind].concat(), seen);
    }
    for (_, all) in module.reexports.iter().filter(|(own, _)| own == "*") {
        let target = absolute(modules, &file, all);
        let found = target.and_then(|all| defines(modules, &[all.as_slice(), rest].concat(), seen));
        if let Some(found) = found.filter(|found| modules[found].items.contains(name)) {
            return Some(found);
        }
    }
    Some(file)
}

/// Strongly connected sets of more than one node: those that each node reaches and is reached from.
fn connected(edges: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let reach: Vec<BTreeSet<usize>> = (0..edges.len()).map(|node| from(edges, node)).collect();
    let mut sets = BTreeSet::new();
    for (node, reached) in reach.iter().enumerate() {
        let mutual = reached
            .iter()
            .filter(|other| reach[**other].contains(&node));
        let set: Vec<usize> = mutual.copied().collect();
        if set.len() > 1 {
            sets.insert(set);
        }
    }
    sets.into_iter().collect()
}

/// The nodes that are reached from one by one edge or more.
fn from(edges: &[BTreeSet<usize>], node: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut next = vec![node];
    while let Some(node) = next.pop() {
        next.extend(edges[node].iter().filter(|other| reached.insert(**other)));
    }
    reached
}
