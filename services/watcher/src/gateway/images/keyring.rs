//! The files of credentials for registries. They are read whenever a registry asks for credentials. So a change
//! counts at once, and no credential stays in memory.
//!
//! ```text
//! FILE                          for every ClusterPolicy; for every Policy where the option says so
//! FOLDER/.dockerconfigjson      likewise; else FOLDER/config.json
//! FOLDER/NAME/…                 for policies that name the Secret NAME
//! FOLDER/NAMESPACE/NAME/…       for policies that name the Secret NAMESPACE/NAME
//! ```

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use anteroom_policy::{ImageCredentials, SecretName};
use tokio::{fs, fs::File, io::AsyncReadExt as _};

use super::credentials::{Config, Credential, Fit};
use crate::gateway::calls::CallFault;

/// The largest file.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The names of a credential file in a folder: as in a mounted pull Secret, and as Docker's own.
/// The first that exists counts.
const FILE_NAMES: [&str; 2] = [".dockerconfigjson", "config.json"];

/// Folders within a folder that are looked through to list its secrets. A secret beyond them can still be named.
const FOLDERS_TOLD_MAX: usize = 1_000;

/// Files of credentials, and folders with such files. If two match an image equally well, the first one counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keyring {
    pub(super) files: Vec<PathBuf>,
    /// Namespaced policies may use the credentials for every policy too.
    pub(super) for_policies: bool,
}

/// A file that was read, and where.
type KeyringFile = (PathBuf, Config);

impl Keyring {
    /// Finds the credential for a repository: in the named Secrets, else in the files for every
    /// policy if `who` allows these. A missing file for every policy holds nothing, as a mounted
    /// optional Secret does.
    ///
    /// # Errors
    /// [`CallFault::NotMounted`] if a named Secret is not there, and [`CallFault::Credentials`] if a file cannot be
    /// read. Such a file may have the credential, so the image is not read without one.
    pub(super) async fn find(
        &self,
        who: &ImageCredentials,
        host: &str,
        repository: &str,
    ) -> Result<Option<Credential>, CallFault> {
        let mut named = Vec::new();
        for secret in &who.secrets {
            named.push(self.mounted(secret).await?);
        }
        let found = best(&named, host, repository)?;
        let is_shared = who.shared && (!who.namespaced || self.for_policies);
        if found.is_some() || !is_shared {
            return Ok(found);
        }
        let mut shared = Vec::new();
        for path in &self.files {
            shared.extend(read_either(path).await?);
        }
        best(&shared, host, repository)
    }

    async fn mounted(&self, secret: &SecretName) -> Result<KeyringFile, CallFault> {
        for path in &self.files {
            if let Some(found) = read_folder(&path.join(secret.as_str())).await? {
                return Ok(found);
            }
        }
        Err(CallFault::NotMounted {
            secret: secret.to_string(),
        })
    }

    /// Logs the Secrets that policies may name, and the faults of the files.
    pub(super) async fn log_state(&self) {
        for path in &self.files {
            let shared = read_either(path).await;
            let secrets = tell_secrets(path).await;
            match shared {
                Ok(Some((path, config))) => tell_wrong(&path, &config),
                Ok(None) if secrets.is_empty() => tracing::info!(
                    path = %path.display(),
                    "registry credentials not found: images are read without them"
                ),
                Ok(None) | Err(_) => {} // A missing file is allowed, and an error was logged before.
            }
            if !secrets.is_empty() {
                let secrets = secrets.join(", ");
                tracing::info!(
                    path = %path.display(),
                    secrets,
                    "registry credentials found: policies may name these Secrets"
                );
            }
        }
    }
}

/// The Secrets that are in a folder by name.
async fn tell_secrets(root: &Path) -> Vec<String> {
    let mut secrets = Vec::new();
    let mut namespaces = Vec::new();
    for name in folders(root, "").await {
        match tell_secret(root, &name).await {
            true => secrets.push(name),
            false => namespaces.push(name),
        }
    }
    for namespace in namespaces {
        for name in folders(root, &namespace).await {
            if tell_secret(root, &name).await {
                secrets.push(name);
            }
        }
    }
    secrets
}

/// Lists the Secrets that policies could name in a folder, with a prefix.
async fn folders(root: &Path, before: &str) -> Vec<String> {
    let mut names = Vec::new();
    let Ok(mut entries) = fs::read_dir(root.join(before)).await else {
        return names;
    };
    while let Ok(Some(entry)) = entries.next_entry().await {
        let name = entry.file_name();
        let name = name.to_str().map(|name| format!("{before}/{name}"));
        let name = name.as_deref().and_then(SecretName::parse);
        names.extend(name.map(|name| name.to_string()));
        if names.len() == FOLDERS_TOLD_MAX {
            break;
        }
    }
    names.sort();
    names
}

/// Logs a Secret's folder, and returns true if it is one.
async fn tell_secret(root: &Path, name: &str) -> bool {
    match read_folder(&root.join(name)).await {
        Ok(Some((path, config))) => {
            tell_wrong(&path, &config);
            true
        }
        Ok(None) => false,
        Err(_) => true,
    }
}

fn tell_wrong(path: &Path, config: &Config) {
    for problem in config.wrong() {
        drop(wrong(path, &problem.to_string()));
    }
}

/// Returns the most precise credential for a repository; of equal ones, the first.
fn best(
    configs: &[KeyringFile],
    host: &str,
    repository: &str,
) -> Result<Option<Credential>, CallFault> {
    let mut best: Option<(Fit, Credential)> = None;
    for (path, config) in configs {
        let Some((fit, credential)) = config.find(host, repository) else {
            continue;
        };
        if best.as_ref().is_some_and(|(better, _)| *better >= fit) {
            continue;
        }
        let credential = credential.clone();
        let credential = credential.map_err(|problem| wrong(path, &problem.to_string()))?;
        best = Some((fit, credential));
    }
    Ok(best.map(|(_, credential)| credential))
}

/// The process log has the path; the answer to the author of a Pod does not.
fn wrong(path: &Path, problem: &str) -> CallFault {
    tracing::error!(
        path = %path.display(),
        problem,
        "file of registry credentials unusable: correct it"
    );
    CallFault::Credentials
}

/// Reads a file, or the file in a folder.
async fn read_either(path: &Path) -> Result<Option<KeyringFile>, CallFault> {
    match fs::metadata(path).await {
        Ok(found) if found.is_dir() => read_folder(path).await,
        _ => read(path).await,
    }
}

async fn read_folder(folder: &Path) -> Result<Option<KeyringFile>, CallFault> {
    for name in FILE_NAMES {
        if let Some(found) = read(&folder.join(name)).await? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Reads a file; `None`: there is no such file.
async fn read(path: &Path) -> Result<Option<KeyringFile>, CallFault> {
    let config = parsed(path).await;
    let config = config.map_err(|problem| wrong(path, &problem))?;
    Ok(config.map(|config| (path.to_owned(), config)))
}

async fn parsed(path: &Path) -> Result<Option<Config>, String> {
    let file = match File::open(path).await {
        Ok(file) => file,
        Err(error) if is_absent(error.kind()) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let mut text = Vec::new();
    let mut limited = file.take(FILE_BYTES_MAX + 1);
    let read = limited.read_to_end(&mut text).await;
    let bytes = read.map_err(|error| error.to_string())?;
    if bytes as u64 > FILE_BYTES_MAX {
        return Err(format!("it has more than {FILE_BYTES_MAX} bytes"));
    }
    let config = Config::parse(&text).map_err(|wrong| wrong.to_string())?;
    Ok(Some(config))
}

/// Returns whether the error means that there is no such file, including a file in the place of its folder.
fn is_absent(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn file(folder: &TempDir, name: &str, text: &str) -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn keyring(files: Vec<PathBuf>) -> Keyring {
        Keyring {
            files,
            for_policies: false,
        }
    }

    fn auths(entries: &[(&str, &str)]) -> String {
        let entry = |(key, name): &(&str, &str)| {
            format!(r#""{key}": {{"username": "{name}", "password": "p"}}"#)
        };
        let entries: Vec<_> = entries.iter().map(entry).collect();
        format!(r#"{{"auths": {{{}}}}}"#, entries.join(", "))
    }

    async fn found(keyring: &Keyring, repository: &str) -> Result<String, CallFault> {
        named(keyring, &ImageCredentials::default(), repository).await
    }

    async fn named(
        keyring: &Keyring,
        who: &ImageCredentials,
        repository: &str,
    ) -> Result<String, CallFault> {
        let found = keyring.find(who, "ghcr.io", repository).await?;
        Ok(match found {
            Some(Credential::Password { name, .. }) => name,
            other => format!("{other:?}"),
        })
    }

    #[tokio::test]
    async fn the_most_specific_credential_of_all_files_counts_then_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let one = file(
            &folder,
            "one",
            &auths(&[("ghcr.io", "one"), ("other.io", "x")]),
        );
        let two = file(
            &folder,
            "two",
            &auths(&[("ghcr.io", "two"), ("ghcr.io/shop", "shop")]),
        );
        let none = one.with_file_name("none");
        let keyring = keyring(vec![none, one.clone(), two.clone()]);
        assert_eq!(found(&keyring, "a").await.as_deref(), Ok("one"));
        assert_eq!(found(&keyring, "shop/a").await.as_deref(), Ok("shop"));
        // What is written counts at once.
        std::fs::write(&two, auths(&[("ghcr.io/shop", "later")])).unwrap();
        assert_eq!(found(&keyring, "shop/a").await.as_deref(), Ok("later"));
        std::fs::remove_file(&one).unwrap();
        assert_eq!(found(&keyring, "a").await.as_deref(), Ok("None"));
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_is_not_one_that_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut largest = auths(&[("ghcr.io", "me")]);
        largest.push_str(&" ".repeat(FILE_BYTES_MAX as usize - largest.len()));
        let fits = keyring(vec![file(&folder, "largest", &largest)]);
        assert_eq!(found(&fits, "a").await.as_deref(), Ok("me"));
        largest.push(' ');
        let half = r#"{"auths": {"ghcr.io/x": {"auth": "?"}, "ghcr.io": {"username": "me"}}}"#;
        let half = keyring(vec![file(&folder, "half", half)]);
        assert_eq!(found(&half, "a").await.as_deref(), Ok("me"));
        for (wrong, repository) in [
            (keyring(vec![file(&folder, "large", &largest)]), "a"),
            (keyring(vec![file(&folder, "text", "hello")]), "a"),
            (half, "x/a"),
        ] {
            let fault = found(&wrong, repository).await.unwrap_err();
            assert_eq!(fault, CallFault::Credentials, "{wrong:?}");
        }
    }

    fn who(secrets: &[&str], shared: bool) -> ImageCredentials {
        let secrets = secrets.iter();
        ImageCredentials {
            secrets: secrets
                .map(|name| SecretName::parse(name).unwrap())
                .collect(),
            shared,
            ..ImageCredentials::default()
        }
    }

    /// A folder with mounted Secrets, as a kubelet mounts them: links lead to a version of the contents.
    struct Mounts(TempDir);

    impl Mounts {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn path(&self) -> PathBuf {
            self.0.path().join("registries")
        }

        /// All files, in place of all that there were.
        fn write(&self, version: &str, files: &[(&str, String)]) {
            let path = self.path();
            let data = path.join(version);
            for (name, text) in files {
                let file = data.join(name);
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(file, text).unwrap();
                let top = name.split('/').next().unwrap();
                let link = path.join(top);
                if !link.is_symlink() {
                    std::os::unix::fs::symlink(format!("..data/{top}"), link).unwrap();
                }
            }
            let new = path.join("..data_tmp");
            std::os::unix::fs::symlink(version, &new).unwrap();
            std::fs::rename(new, path.join("..data")).unwrap();
        }
    }

    #[tokio::test]
    async fn secrets_that_are_named_sign_in_alone_and_in_their_order() {
        let mounts = Mounts::new();
        mounts.write(
            "..1",
            &[
                (".dockerconfigjson", auths(&[("ghcr.io/own", "all")])),
                ("a/.dockerconfigjson", auths(&[("ghcr.io", "a")])),
                ("a/config.json", auths(&[("ghcr.io/own", "not-read")])),
                (
                    "b/config.json",
                    auths(&[("ghcr.io", "b"), ("ghcr.io/shop", "shop")]),
                ),
                ("team/b/config.json", auths(&[("ghcr.io", "team")])),
                ("other/config.json", auths(&[("other.io", "x")])),
            ],
        );
        let folder = tempfile::tempdir().unwrap();
        let shared = file(&folder, "shared", &auths(&[("ghcr.io", "shared")]));
        let keyring = keyring(vec![shared, mounts.path()]);
        for (secrets, with_shared, repository, name) in [
            (&["a"][..], false, "x", "a"),
            (&["a", "b"], false, "x", "a"),
            (&["b", "a"], false, "x", "b"),
            (&["a", "b"], false, "shop/x", "shop"),
            (&["team/b"], false, "shop/x", "team"),
            // What is for every policy comes after them, and only where it is request.
            (&["other"], false, "x", "None"),
            (&["other"], true, "x", "shared"),
            (&["a"], true, "own/x", "a"),
            (&[], true, "own/x", "all"),
            (&[], true, "shop/x", "shared"),
        ] {
            let found = named(&keyring, &who(secrets, with_shared), repository).await;
            assert_eq!(found.as_deref(), Ok(name), "{secrets:?} {repository}");
        }
        // A Secret that is not mounted is an error, even if mounted Secrets have credentials.
        for secrets in [&["c"][..], &["a", "c"], &["team/c"], &["team"], &["c/b"]] {
            for with_shared in [false, true] {
                let who = who(secrets, with_shared);
                let fault = named(&keyring, &who, "x").await.unwrap_err();
                let secret = secrets.last().unwrap().to_string();
                assert_eq!(fault, CallFault::NotMounted { secret });
            }
        }
    }

    #[tokio::test]
    async fn files_for_everybody_sign_in_for_a_policy_only_where_the_option_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let shared = file(&folder, "shared", &auths(&[("ghcr.io", "shared")]));
        let of_policy = ImageCredentials {
            namespaced: true,
            ..ImageCredentials::default()
        };
        let mut keyring = keyring(vec![shared]);
        assert_eq!(found(&keyring, "x").await.as_deref(), Ok("shared"));
        assert_eq!(
            named(&keyring, &of_policy, "x").await.as_deref(),
            Ok("None")
        );
        keyring.for_policies = true;
        assert_eq!(
            named(&keyring, &of_policy, "x").await.as_deref(),
            Ok("shared")
        );
    }

    #[tokio::test]
    async fn a_mounted_secret_is_read_again() {
        let mounts = Mounts::new();
        let of = |name: &str| ("a/.dockerconfigjson", auths(&[("ghcr.io", name)]));
        mounts.write("..1", &[of("one")]);
        let (keyring, who) = (keyring(vec![mounts.path()]), who(&["a"], false));
        assert_eq!(named(&keyring, &who, "x").await.as_deref(), Ok("one"));
        mounts.write("..2", &[of("two")]);
        assert_eq!(named(&keyring, &who, "x").await.as_deref(), Ok("two"));
        mounts.write("..3", &[("a/.dockerconfigjson", "hello".to_owned())]);
        let fault = named(&keyring, &who, "x").await.unwrap_err();
        assert_eq!(fault, CallFault::Credentials);
        mounts.write("..4", &[("b/config.json", auths(&[]))]);
        let fault = named(&keyring, &who, "x").await.unwrap_err();
        let secret = "a".to_owned();
        assert_eq!(fault, CallFault::NotMounted { secret });
        let told = tell_secrets(&mounts.path()).await;
        assert_eq!(told, ["b"]);
        keyring.log_state().await;
    }

    #[tokio::test]
    async fn the_secrets_mounted_in_a_folder_are_listed_by_name() {
        let mounts = Mounts::new();
        let text = || auths(&[("ghcr.io", "me")]);
        mounts.write(
            "..1",
            &[
                (".dockerconfigjson", text()),
                ("b/config.json", text()),
                ("a/.dockerconfigjson", "hello".to_owned()),
                ("team/a/config.json", text()),
                ("empty/other", text()),
                ("Large/config.json", text()),
            ],
        );
        let told = tell_secrets(&mounts.path()).await;
        assert_eq!(told, ["a", "b", "team/a"]);
        assert!(tell_secrets(&mounts.path().join("none")).await.is_empty());
    }
}
