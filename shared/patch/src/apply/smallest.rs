//! The smallest table that says the same: without types that nothing needs, and each type once.

use std::collections::BTreeMap;

use super::{
    record,
    types::{ObjectSchema, Type, TypeId, Types},
};

/// Returns the types that `roots` need, each once, in the order in which they are met, and the roots in them.
///
/// At first all types count as equal. Those that differ in themselves, or in types that they name, are told
/// apart until nothing differs any more. So types that are parts of themselves are found equal too.
pub(super) fn table(types: &Types, roots: &[TypeId]) -> (Vec<Type>, Vec<TypeId>) {
    let reached = ObjectSchema::reached(types, roots);
    let mut classes: BTreeMap<TypeId, usize> = reached.iter().map(|id| (*id, 0)).collect();
    let mut count = 1;
    loop {
        let mut known = BTreeMap::new();
        let mut next = BTreeMap::new();
        for id in &reached {
            let class = |id| classes.get(&id).copied().unwrap_or_default();
            let of = types.get(*id).map(|of| of.renamed(class));
            // The signature includes the class, so that types in different classes stay apart.
            let signature = (class(*id), of.map(|of| record::write(&of).to_string()));
            let place = known.len();
            next.insert(*id, *known.entry(signature).or_insert(place));
        }
        classes = next;
        if known.len() == count {
            break;
        }
        count = known.len();
    }
    // Classes are numbered in the order in which they are met, and the first of each stands for all.
    let class = |id| classes.get(&id).copied().unwrap_or_default();
    let mut smallest: Vec<Type> = Vec::with_capacity(count);
    for id in &reached {
        if let Some(of) = types.get(*id).filter(|_| class(*id) == smallest.len()) {
            smallest.push(of.renamed(class));
        }
    }
    (smallest, roots.iter().map(|id| class(*id)).collect())
}
