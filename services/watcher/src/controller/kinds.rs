//! The `kinds` system view: what the API server serves, for those who may not ask it.

use std::time::Instant;

use anteroom_model::{KindRecord, ObjectKey, ResourceVersion};
use tracing::Span;

use super::Controller;
use crate::{discovery::Catalog, reflect::content_version};

impl Controller {
    /// Publishes the catalog; what is the same as before is not written again.
    pub(super) fn publish_kinds(&mut self, catalog: &Catalog) {
        let own = &mut self.own.kinds;
        let now = Instant::now();
        self.tools.publisher.with(|book| {
            book.begin_list(own, false);
            for resource in &catalog.resources {
                let record = &resource.record;
                let (key, version, body) = match encode(record) {
                    Ok(encoded) => encoded,
                    Err(error) => {
                        // A record is a few hundred bytes of plain fields.
                        tracing::error!(kind = record.kind, %error, "kind cannot be published");
                        continue;
                    }
                };
                if !book.is_known(own, &key, &version) {
                    book.put(own, key, version, body, now, Span::none());
                }
            }
            book.listed(own, &ResourceVersion::default(), now);
        });
    }
}

type Encoded = (ObjectKey, ResourceVersion, bytes::Bytes);

fn encode(record: &KindRecord) -> Result<Encoded, anteroom_wire::WireError> {
    let body = anteroom_wire::body::encode(record)?;
    Ok((key(record), content_version(&body), body))
}

/// As in `Ingress.v1.networking.k8s.io`.
fn key(record: &KindRecord) -> ObjectKey {
    let gvr = &record.gvr;
    let mut name = format!("{}.{}", record.kind, gvr.version);
    if !gvr.group.is_empty() {
        name.push('.');
        name.push_str(&gvr.group);
    }
    ObjectKey::new("", name)
}

#[cfg(test)]
mod tests {
    use anteroom_model::GroupVersionResource;

    use super::*;

    #[test]
    fn keys_are_kinds_with_version_and_group() {
        let record = |group: &str, kind: &str| KindRecord {
            gvr: GroupVersionResource::new(group, "v1", "x"),
            kind: kind.into(),
            namespaced: true,
            subresources: Vec::new(),
            preferred: true,
            watchable: true,
        };
        let ingress = key(&record("networking.k8s.io", "Ingress"));
        assert_eq!(&*ingress.name, "Ingress.v1.networking.k8s.io");
        assert_eq!(&*key(&record("", "Pod")).name, "Pod.v1");
    }
}
