//! The parts of namespaces in a view that holds objects of many namespaces, and that nobody needs whole.
//!
//! The objects of one namespace take at most its quota of bytes. Of each object beyond, the log has a stub, so queries
//! that could see the object are errors that name it. Objects of other namespaces, and the view, are not touched. Once
//! there is room, the view's source is listed again, and the stubs are replaced. Of a view of single objects, only the
//! stubs are read. A namespace whose stubs are read in vain waits longer each time. Objects that the cluster's own policies
//! or entries read one by one count in no part, and are never stubs.
//!
//! The version of a stub in the log is that of its object, with [`STUB_MARK`]. So the writer of a later term knows which
//! objects are stubs.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use anteroom_model::{ObjectKey, ResourceVersion, Source, ViewState};
use anteroom_wire::unreadable;
use bytes::Bytes;
use tokio::time::Instant;

use super::{SourceObject, ViewWriteState};
use crate::log_writer::publish::{log_space, work::ChangeOrigin};

/// The end of a stub's version in the log. Versions of objects are decimal numbers.
const STUB_MARK: &str = "~stub";

/// The shortest time between two lists of a source for the stubs of its view, and between two reads of the stubs of one
/// namespace. Each that brings no stub back doubles the time for the namespace.
const LISTS_APART: Duration = Duration::from_secs(60);

/// The longest time until the stubs of a namespace that may have room for them are read again.
const LISTS_APART_MAX: Duration = Duration::from_secs(60 * 60);

/// The shortest time between two reads of single objects that are stubs. The cluster's own policies may read some of
/// them, and their names may be a user's choice.
const READS_APART: Duration = Duration::from_secs(10);

/// The most single objects that are read at once.
const READS_MAX: usize = 256;

/// The bytes of an object's body in the log. One word, since there is one for each object of every view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BodySize(u32);

impl BodySize {
    /// The log has a stub in place of the body, for want of room in the namespace's part.
    pub(super) const STUB: Self = Self(u32::MAX);

    pub(super) fn of(body: &[u8]) -> Self {
        let bytes = u32::try_from(body.len()).unwrap_or(u32::MAX);
        Self(bytes.min(u32::MAX - 1))
    }

    pub(super) fn is_stub(self) -> bool {
        self == Self::STUB
    }

    /// Returns whether the log has the body, and its size was seen in this term.
    pub(super) fn is_known(self) -> bool {
        self.bytes() > 0
    }

    /// Returns the bytes; none where they are not known, or of a stub.
    pub(super) fn bytes(self) -> u64 {
        if self.is_stub() { 0 } else { self.0.into() }
    }

    /// Returns the same as [`BodySize::bytes`].
    pub(super) fn in_memory(self) -> usize {
        usize::try_from(self.bytes()).unwrap_or(usize::MAX)
    }

    /// Returns the version by which the log has an object of this version, or its stub.
    pub(super) fn version_in_log(self, version: ResourceVersion) -> ResourceVersion {
        match self.is_stub() {
            true => ResourceVersion::new(format!("{version}{STUB_MARK}")),
            false => version,
        }
    }

    /// Returns the bytes by which an object of this size counts in the part of its namespace.
    fn charged(self) -> u64 {
        match self.bytes() {
            0 => 0,
            bytes => log_space::bytes_in_log(1, bytes),
        }
    }
}

impl SourceObject {
    /// Returns the object of which the log has this version, in a size that is not known.
    pub(super) fn in_log(version: ResourceVersion) -> Self {
        let of_stub = version.as_str().strip_suffix(STUB_MARK);
        let (version, size) = match of_stub.map(ResourceVersion::new) {
            Some(version) => (version, BodySize::STUB),
            None => (version, BodySize::default()),
        };
        Self {
            version,
            size,
            list: 0,
        }
    }

    /// Returns the version by which the log has the object, or its stub.
    pub(super) fn into_version_in_log(self) -> ResourceVersion {
        self.size.version_in_log(self.version)
    }
}

/// The parts of the namespaces in a view.
#[derive(Debug, Default)]
pub(super) struct NamespaceParts {
    /// The most bytes of one namespace's objects; `None`: they are not limited any more.
    bytes_max: Option<u64>,
    namespaces: HashMap<Box<str>, NamespacePart>,
    /// Objects that the cluster's own policies or entries read one by one.
    exempt: HashSet<ObjectKey>,
    /// The stubs are read one by one. If this is false, the source is listed for them.
    are_single: bool,
    /// An exempt object is still a stub, and has to be read soon.
    is_urgent: bool,
    /// The time at which stubs were last asked for.
    asked: Option<Instant>,
    /// The last of the stubs that were asked for, where these were not all: the next ones come after it.
    asked_to: Option<ObjectKey>,
}

/// The part of one namespace.
#[derive(Clone, Copy, Debug, Default)]
struct NamespacePart {
    bytes: u64,
    stubs: u64,
    /// The fewest bytes for which a stub could be replaced by its object; 0: they are not known.
    least_wanted: u64,
    /// The time at which stubs were last asked for because there seemed to be room.
    asked: Option<Instant>,
    /// The number of these times since a list brought a stub back.
    in_vain: u32,
}

impl NamespaceParts {
    /// The log has an object in another size. [`BodySize::default`] stands for no object, too.
    pub(super) fn replace(&mut self, key: &ObjectKey, before: BodySize, after: BodySize) {
        if before == after {
            return;
        }
        let (freed, taken) = match self.exempt.contains(key) {
            true => (0, 0),
            false => (before.charged(), after.charged()),
        };
        self.change(&key.namespace, |part| {
            part.bytes = part.bytes.saturating_add(taken).saturating_sub(freed);
            part.stubs = part.stubs.saturating_add(after.is_stub().into());
            part.stubs = part.stubs.saturating_sub(before.is_stub().into());
        });
    }

    /// All objects are forgotten.
    pub(super) fn clear(&mut self) {
        self.namespaces.clear();
    }

    /// Returns the bytes that the parts take in memory, about.
    pub(super) fn memory(&self) -> usize {
        let parts = self.namespaces.capacity() * (size_of::<(Box<str>, NamespacePart)>() + 1);
        let exempt = self.exempt.capacity() * (size_of::<ObjectKey>() + 1);
        let keys = self.exempt.iter();
        let texts = keys.map(|key| key.namespace.len() + key.name.len());
        parts + exempt + texts.sum::<usize>()
    }

    /// Returns the limit, if an object of this size would exceed its namespace's part.
    fn refuses(&self, key: &ObjectKey, before: BodySize, wanted: BodySize) -> Option<u64> {
        let bytes_max = self.bytes_max?;
        if key.namespace.is_empty() || self.exempt.contains(key) {
            return None;
        }
        let others = self.part(&key.namespace).bytes;
        let others = others.saturating_sub(before.charged());
        (others.saturating_add(wanted.charged()) > bytes_max).then_some(bytes_max)
    }

    fn part(&self, namespace: &str) -> NamespacePart {
        let part = self.namespaces.get(namespace);
        part.copied().unwrap_or_default()
    }

    /// A stub stands in place of an object of this size.
    fn want(&mut self, namespace: &str, size: BodySize) {
        let wanted = size.charged();
        self.change(namespace, |part| {
            part.least_wanted = match part.least_wanted {
                0 => wanted,
                least => least.min(wanted),
            };
        });
    }

    fn exempt(&mut self, key: &ObjectKey, size: BodySize, exempt: bool) {
        let changed = match exempt {
            true => self.exempt.insert(key.clone()),
            false => self.exempt.remove(key),
        };
        if !changed {
            return;
        }
        self.is_urgent |= exempt && size.is_stub();
        let charged = size.charged();
        self.change(&key.namespace, |part| {
            part.bytes = match exempt {
                true => part.bytes.saturating_sub(charged),
                false => part.bytes.saturating_add(charged),
            };
        });
    }

    fn change(&mut self, namespace: &str, change: impl FnOnce(&mut NamespacePart)) {
        let mut part = self.part(namespace);
        change(&mut part);
        if part.stubs == 0 {
            part.least_wanted = 0;
        }
        if part.bytes == 0 && part.stubs == 0 {
            self.namespaces.remove(namespace);
        } else if let Some(known) = self.namespaces.get_mut(namespace) {
            *known = part;
        } else {
            self.namespaces.insert(namespace.into(), part);
        }
    }

    /// Returns whether stubs are to be asked for.
    fn is_list_due(&self, now: Instant) -> bool {
        let apart = match self.are_single {
            true => READS_APART,
            false => LISTS_APART,
        };
        let mut parts = self.namespaces.values();
        has_passed(self.asked, apart, now)
            && (self.is_urgent || parts.any(|part| part.is_due(self.bytes_max, now)))
    }

    /// Returns whether the stub of this object is one of those that are asked for: a list brings all of them.
    fn asks_for(&self, key: &ObjectKey, now: Instant) -> bool {
        let part = self.part(&key.namespace);
        !self.are_single || self.exempt.contains(key) || part.is_due(self.bytes_max, now)
    }

    /// Asks for stubs, single ones in turns. Returns those that will come.
    fn ask(&mut self, mut stubs: Vec<ObjectKey>, now: Instant) -> Vec<ObjectKey> {
        (self.is_urgent, self.asked) = (false, Some(now));
        if self.are_single && stubs.len() > READS_MAX {
            stubs.sort_unstable();
            let had = |key: &ObjectKey| self.asked_to.as_ref().is_some_and(|last| key <= last);
            let next = stubs.partition_point(had);
            stubs.rotate_left(next);
            let later = stubs.split_off(READS_MAX);
            self.is_urgent = later.iter().any(|key| self.exempt.contains(key));
            self.asked_to = stubs.last().cloned();
        }
        let mut counts: HashMap<&str, u64> = HashMap::new();
        for key in &stubs {
            *counts.entry(&key.namespace).or_default() += 1;
        }
        for (namespace, count) in counts {
            if let Some(part) = self.namespaces.get_mut(namespace) {
                part.ask(count, self.bytes_max, now);
            }
        }
        stubs
    }

    /// A list, or a read, has brought an object of which the log had a stub.
    fn brought_back(&mut self, namespace: &str) {
        if let Some(part) = self.namespaces.get_mut(namespace) {
            part.in_vain = 0;
        }
    }
}

impl NamespacePart {
    /// Returns whether there may be room for a stub's object, and the last time in vain is long enough ago.
    fn is_due(&self, bytes_max: Option<u64>, now: Instant) -> bool {
        let wanted = self.bytes.saturating_add(self.least_wanted);
        let is_held = bytes_max.is_none_or(|bytes_max| wanted <= bytes_max);
        let may_fit = self.stubs > 0 && (is_held || self.least_wanted == 0);
        let apart = LISTS_APART * (1 << self.in_vain.min(6));
        may_fit && has_passed(self.asked, apart.min(LISTS_APART_MAX), now)
    }

    /// So many of the stubs are asked for. If these are all, they will say anew how many bytes they want.
    fn ask(&mut self, stubs: u64, bytes_max: Option<u64>, now: Instant) {
        if self.is_due(bytes_max, now) {
            self.asked = Some(now);
            self.in_vain = self.in_vain.saturating_add(1);
        }
        if stubs == self.stubs {
            self.least_wanted = 0;
        }
    }
}

/// Returns whether so much time has passed.
fn has_passed(since: Option<Instant>, time: Duration, now: Instant) -> bool {
    since.is_none_or(|since| now.saturating_duration_since(since) >= time)
}

impl ViewWriteState {
    /// Limits the bytes of each namespace's objects, or ceases to.
    pub(in crate::log_writer::publish) fn limit_namespaces(&mut self, bytes_max: Option<u64>) {
        if let Some(parts) = &mut self.parts {
            parts.bytes_max = bytes_max;
            return;
        }
        if bytes_max.is_none() {
            return;
        }
        let mut parts = NamespaceParts {
            bytes_max,
            are_single: matches!(self.info.source, Source::Objects { .. }),
            ..NamespaceParts::default()
        };
        for (key, known) in &self.at_source {
            parts.replace(key, BodySize::default(), known.size);
        }
        self.parts = Some(Box::new(parts));
    }

    /// Counts the object in the part of its namespace, or ceases to (`exempt`).
    pub(in crate::log_writer::publish) fn exempt(&mut self, key: &ObjectKey, exempt: bool) {
        let size = self.size_of(key);
        if let Some(parts) = &mut self.parts {
            parts.exempt(key, size, exempt);
        }
    }

    /// Returns whether stubs are to be asked for, since there may be room for their objects.
    pub(in crate::log_writer::publish) fn is_list_for_stubs_due(&self, now: Instant) -> bool {
        // The list of a view that is suspended, or is not synced, comes anyway.
        let is_synced = self.state == ViewState::Synced && !self.is_suspended();
        let parts = self.parts.as_ref().filter(|_| is_synced);
        parts.is_some_and(|parts| parts.is_list_due(now))
    }

    /// Stubs are asked for: the source is listed, or each of the returned objects is read.
    pub(in crate::log_writer::publish) fn list_for_stubs(
        &mut self,
        now: Instant,
    ) -> Vec<ObjectKey> {
        let Some(parts) = &mut self.parts else {
            return Vec::new();
        };
        let at_source = self.at_source.iter();
        let stubs = at_source
            .filter(|(key, known)| known.size.is_stub() && parts.asks_for(key, now))
            .map(|(key, _)| key.clone())
            .collect();
        parts.ask(stubs, now)
    }

    /// Returns the bytes of the largest part of a namespace. Where parts are not counted, it is all that the view wants in
    /// the log.
    pub(in crate::log_writer::publish) fn largest_part(&self) -> u64 {
        let Some(parts) = &self.parts else {
            return self.bytes_wanted();
        };
        let bytes = parts.namespaces.values().map(|part| part.bytes);
        bytes.max().unwrap_or_default()
    }

    /// Returns the size of an object, which is 0 if there is none.
    pub(super) fn size_of(&self, key: &ObjectKey) -> BodySize {
        let known = self.at_source.get(key);
        known.map(|known| known.size).unwrap_or_default()
    }

    /// Takes a body into the part of its namespace. Returns the body to write and its size: a stub, if the part has no
    /// room.
    pub(super) fn admit(
        &mut self,
        key: &ObjectKey,
        body: Bytes,
        origin: &ChangeOrigin,
    ) -> (BodySize, Bytes) {
        let (before, wanted) = (self.size_of(key), BodySize::of(&body));
        let Some(parts) = &mut self.parts else {
            return (wanted, body);
        };
        let refused = match origin {
            // The word of the writer itself is short, and never the object.
            ChangeOrigin::Own => None,
            ChangeOrigin::List | ChangeOrigin::Event(_) => parts.refuses(key, before, wanted),
        };
        let stub = refused.map(|bytes_max| unreadable::stub(&reason(key, bytes_max), None));
        // Nothing is saved by the stub of a small object.
        let Some(stub) = stub.filter(|stub| stub.len() < body.len()) else {
            if before.is_stub() && matches!(origin, ChangeOrigin::List) {
                parts.brought_back(&key.namespace);
            }
            parts.replace(key, before, wanted);
            return (wanted, body);
        };
        if parts.part(&key.namespace).stubs == 0 {
            tracing::warn!(
                view = %self.info.source.view_id(),
                namespace = %key.namespace,
                %key,
                "objects of a namespace exceed its part of a view: queries that could see a further one fail; make \
                 objects smaller, or raise `--namespace-log-bytes-max`"
            );
        }
        parts.replace(key, before, BodySize::STUB);
        parts.want(&key.namespace, wanted);
        (BodySize::STUB, stub)
    }
}

fn reason(key: &ObjectKey, bytes_max: u64) -> String {
    let namespace = &key.namespace;
    format!(
        "the objects of namespace `{namespace}` may take {bytes_max} bytes of this view, and with this object they \
         would take more. It is read again once there is room: make objects smaller, delete some, or raise \
         `--namespace-log-bytes-max`"
    )
}
