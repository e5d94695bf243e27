//! The keys and certificates of a NATS, whose authority issues further certificates.

use std::path::{Path, PathBuf};

use anteroom_keys::{LOGINS, NatsKeys, files, names_in_cluster};
use anteroom_runtime::{certs::issue::Authority, wall_clock};
use jiff::{SignedDuration, Timestamp};

use crate::certificates;

/// The time for which keys and certificates are valid that nobody gives another end.
pub(super) const VALIDITY: SignedDuration = SignedDuration::from_hours(24);

/// The keys of the servers and of all logins, in a folder.
#[derive(Debug)]
pub(super) struct Keys {
    authority: Authority,
    folder: PathBuf,
}

impl Keys {
    /// Makes all of them anew, the authority too, over those that the folder has. A login has a certificate beside its key.
    pub(super) fn make(folder: &Path) -> anyhow::Result<Self> {
        let now = wall_clock::now();
        let mut keys = NatsKeys::new(&names_in_cluster("anteroom"), VALIDITY, now)?;
        let authority = Authority::valid_for("anteroom-nats", VALIDITY, now)?;
        keys.authority_pem.clone_from(&authority.certificate_pem);
        files::write(&keys, folder)?;
        let made = Self {
            authority,
            folder: folder.to_owned(),
        };
        made.certify_until(now + VALIDITY)?;
        Ok(made)
    }

    /// Issues the certificates of the servers and of all logins anew. Who reads them next has those that end then.
    pub(super) fn certify_until(&self, not_after: Timestamp) -> anyhow::Result<()> {
        let names = names_in_cluster("anteroom");
        for owner in [files::SERVER].into_iter().chain(LOGINS) {
            let pair = certificates::issue(&self.authority, &names, not_after)?;
            certificates::write(&pair, &self.folder.join(owner))?;
        }
        Ok(())
    }
}
