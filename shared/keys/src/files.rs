//! Keys in a folder: one folder for the server, and one for each login, so that each login can be given its own
//! folder.
//!
//! ```text
//! server/keys.conf  tls.crt  tls.key  ca.crt
//! watcher/seed  ca.crt          and so on for each login
//! ```

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::Path,
};

use crate::{AUTHORITY, KeysError, NatsKeys, PUBLIC_KEYS, SEED, SERVER_CHAIN, SERVER_KEY};

/// The folder of the server's files.
pub const SERVER: &str = "server";

/// Returns whether a folder holds keys, or a part of them.
pub fn is_there(folder: &Path) -> bool {
    folder.join(SERVER).join(PUBLIC_KEYS).exists()
}

/// Writes keys into a folder, over those that are there. Files with secrets are their owner's alone (0600). The server's
/// [`PUBLIC_KEYS`] come last, so that what [`is_there`] is complete.
///
/// # Errors
/// [`KeysError::Write`].
pub fn write(keys: &NatsKeys, folder: &Path) -> Result<(), KeysError> {
    for login in &keys.logins {
        let own = folder.join(login.name);
        put(&own, AUTHORITY, &keys.authority_pem, false)?;
        put(&own, SEED, &login.seed, true)?;
    }
    let server = folder.join(SERVER);
    put(&server, AUTHORITY, &keys.authority_pem, false)?;
    put(&server, SERVER_CHAIN, &keys.server.chain, false)?;
    put(&server, SERVER_KEY, &keys.server.key, true)?;
    put(&server, PUBLIC_KEYS, &keys.public_keys(), false)
}

fn put(folder: &Path, name: &str, text: &str, is_secret: bool) -> Result<(), KeysError> {
    let path = folder.join(name);
    let written = || {
        fs::create_dir_all(folder)?;
        // The file is removed and created, so that the file has this mode from the start.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt as _;
            options.mode(if is_secret { 0o600 } else { 0o644 });
        }
        options.open(&path)?.write_all(text.as_bytes())
    };
    written().map_err(|source| KeysError::Write {
        path: path.display().to_string(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use anteroom_runtime::wall_clock;
    use jiff::SignedDuration;

    use super::*;
    use crate::{LOGINS, names_in_cluster};

    #[test]
    fn each_login_has_a_folder_with_its_own_secret() {
        let folder = tempfile::tempdir().unwrap();
        let day = SignedDuration::from_hours(24);
        let keys = NatsKeys::new(&names_in_cluster("anteroom"), day, wall_clock::now()).unwrap();
        assert!(!is_there(folder.path()));
        write(&keys, folder.path()).unwrap();
        write(&keys, folder.path()).unwrap();
        assert!(is_there(folder.path()));
        for login in LOGINS {
            let seed = folder.path().join(login).join(SEED);
            assert_eq!(
                fs::metadata(&seed).unwrap().permissions().mode() & 0o777,
                0o600
            );
            let known = keys
                .logins
                .iter()
                .find(|known| known.name == login)
                .unwrap();
            assert_eq!(fs::read_to_string(&seed).unwrap(), known.seed);
        }
        for name in fs::read_dir(folder.path().join(SERVER)).unwrap() {
            let text = fs::read_to_string(name.unwrap().path()).unwrap();
            assert!(keys.logins.iter().all(|login| !text.contains(&login.seed)));
        }
    }
}
